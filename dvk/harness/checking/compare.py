"""Comparison of a candidate's return value with the reference's: structure, then every element.

The error of an element is |ŷ − y| / (|y| + s). The scale s is the root mean square of its row, the smallest trailing block of at least
`ROW` elements, so that a row of small values is not hidden behind rows of large ones; but no less than `SHARE` of the whole output's, since
a row may contain only remainders of larger terms (a ReLU of a dead channel, a cancelled difference). `tolerance` defines the admitted
errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dvk.harness.checking.narrow_floats import narrow, steps
from dvk.harness.checking.norms import row_norms
from dvk.harness.checking.tolerance import NONE, Errors

CHUNK = 1 << 18
"""Elements compared at a time on a CPU, so that temporaries stay in the cache; 256 times as many on a GPU."""
EQUAL_AT_ONCE = 1 << 26
"""Elements compared for equality at a time."""
ROW = 8
SHARE = 0.1
TINY = 1e-30


@dataclass
class ExpectedLeaf:
    """One output leaf of the reference, as `calls.describe` lists them.

    `same` is the reference's result, a tensor or a constant; `truth` the same in float64, rounded to float32 unless that would matter, or
    None; `scale` the rows' scales and `rms` the whole output's; `admitted` the admitted errors, of a Python float relative to itself, zero
    for exact types; `own` and `lower` as in `tolerance`.
    """

    name: str
    same: Any
    truth: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    rms: float = 0.0
    admitted: Errors = NONE
    own: Errors = NONE
    lower: Errors = NONE
    finite: bool = True
    wide: bool = False
    """Compared in float64, since float32's rounding would matter."""
    open: torch.Tensor | None = None
    """Mask of elements (real and imaginary parts are two) where any value is right; None: nowhere."""
    once: bool = False
    """Whether the reference is the float64 result rounded once to its 16 bits: it declares a finer accumulation than its outputs."""
    vague: bool = False
    """Whether a NaN was made of infinities, as which it may come out as well."""
    places: bool = False
    """Whether integers of eight bits are indices or classes, not codes."""

    def thin(self) -> ExpectedLeaf:
        """Data that later draws need of it, without its tensors."""
        return replace(
            self,
            same=None,
            truth=None,
            scale=None if self.scale is None else self.scale[:0],
            open=None,
        )


@dataclass(frozen=True)
class Difference:
    """Why an output is wrong, and its error relative to its scale (nan if that has no size)."""

    text: str
    error: float = float("nan")


def structure(
    leaves: list[Any],
    spec_text: str,
    expected: list[ExpectedLeaf],
    expected_text: str,
    *,
    exact_strides: bool = False,
) -> Difference | None:
    """Return how a result's nesting, constants, dtypes, shapes, strides or devices differ from the reference's; None if they do not.

    Args:
        leaves: tensors with the dtype, shape and strides that the candidate claims, and constants, by `calls.describe`.
        spec_text: the text of their nesting.
        expected: the reference's leaves.
        expected_text: its text.
        exact_strides: other strides than the reference's are a difference even if the output is contiguous.
    """
    if spec_text != expected_text or len(leaves) != len(expected):
        return Difference(
            f"the output is {_outline(leaves, spec_text)} instead of {_outline([e.same for e in expected], expected_text)}"
        )
    for leaf, want in zip(leaves, expected, strict=True):
        if not isinstance(want.same, torch.Tensor):
            if type(leaf) is not type(want.same) or not (
                repr(leaf) == repr(want.same) or _close(leaf, want)
            ):
                return Difference(f"`{want.name}` is {_shown(leaf)} instead of {_shown(want.same)}")
            continue
        if not isinstance(leaf, torch.Tensor):
            return Difference(f"`{want.name}` is {_shown(leaf)} instead of a tensor")
        if (difference := _outside(leaf, want.same, exact_strides)) is not None:
            return Difference(f"`{want.name}` has {difference}")
    return None


def notes(leaves: list[Any], expected: list[ExpectedLeaf]) -> Iterator[str]:
    """Return notes on outputs that are right: strides other than the reference's."""
    for leaf, want in zip(leaves, expected, strict=True):
        if (
            isinstance(leaf, torch.Tensor)
            and isinstance(want.same, torch.Tensor)
            and other_strides(leaf, want.same)
        ):
            yield f"`{want.name}` is contiguous where the reference's strides are {tuple(want.same.stride())}"


def _close(number: Any, want: ExpectedLeaf) -> bool:
    """Whether another order of summation may have turned the reference's Python float into this one."""
    off = (
        abs(number - want.same)
        if isinstance(number, float) and isinstance(want.same, float)
        else math.nan
    )
    return off == off and off <= want.admitted.worst * abs(want.same)


def values(got: torch.Tensor, want: ExpectedLeaf) -> tuple[Errors, Difference | None]:
    """Return the errors, and what is wrong if they exceed the admitted ones.

    The candidate may agree with the float64 truth or with the reference itself; one of them throughout.
    """
    same = want.same
    if want.scale is None:
        agree = equal(got, same)
        if agree or (
            want.open is not None and bool(((steps(got) == steps(same)) | want.open).all())
        ):
            return NONE, None
        return Errors(float("inf"), float("inf")), Difference(
            f"`{want.name}`: {_unequal(got, same)}", float("inf")
        )
    if got.dtype == same.dtype and equal(got, same):
        return NONE, None
    if (difference := _special(got, want)) is not None:
        return Errors(float("nan"), float("nan")), difference
    result = []
    for target in targets(want):
        result.append(errors(got, target, want))
        if result[-1].within(want.admitted):
            return result[-1], None
    best = min(result, key=lambda e: e.worst if e.worst == e.worst else float("inf"))
    return best, _difference(got, want, best)


def targets(want: ExpectedLeaf) -> list[torch.Tensor]:
    """Return possible targets: the truth first, since it is usually nearer."""
    return [want.same] if want.truth is None else [want.truth, want.same]


def errors(got: torch.Tensor, target: torch.Tensor, want: ExpectedLeaf) -> Errors:
    """Return errors of `got` against a target of `want`, without elements where the reference is not finite."""
    count = real(got).numel()
    worst, squares = [], []
    for error in _by_slices(got, target, want):
        worst.append(error.amax())
        # Summed pairwise, chunk by chunk: float32 suffices for a size, and a conversion would cost as much as everything else.
        squares.append(error.square_().sum().double())
    if not worst:
        return NONE
    return Errors(
        float((torch.stack(squares).sum() / count).sqrt()), float(torch.stack(worst).max())
    )


def count_beyond(
    got: torch.Tensor, target: torch.Tensor, want: ExpectedLeaf, levels: Sequence[float]
) -> list[int]:
    """Return how many elements are off by more than each of these levels, relative to the scale."""
    counts = [
        torch.stack([(error > level).sum() for level in levels])
        for error in _by_slices(got, target, want)
    ]
    return [int(n) for n in torch.stack(counts).sum(0)] if counts else [0] * len(levels)


def _by_slices(
    got: torch.Tensor, target: torch.Tensor, want: ExpectedLeaf
) -> Iterator[torch.Tensor]:
    """Yield the errors of some rows at a time, relative to the scale; 0 where nothing is compared. The caller may overwrite them."""
    compute = torch.float64 if want.wide else torch.float32
    for rows, mine, theirs, skip in _slices(got, target, want, cut=True):
        assert want.scale is not None
        y = theirs.to(compute)
        error = (mine.to(compute) - y).abs_()
        error.div_(y.abs().add_(want.scale[rows, None]))
        if skip is not None:
            error.masked_fill_(skip, 0.0)
        yield error


def sliced_ratios(
    got: torch.Tensor, target: torch.Tensor, want: ExpectedLeaf
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield rows with their absolute error, their error relative to the scale, and that scale by element, some rows at a time; errors are 0
    where the reference is not finite, and inf at a NaN."""
    compute = torch.float64 if want.wide else torch.float32
    for rows, mine, theirs, skip in _slices(got, target, want):
        assert want.scale is not None
        y = theirs.to(compute)
        move = (mine.to(compute) - y).abs_().nan_to_num_(nan=math.inf, posinf=math.inf)
        if skip is not None:
            move.masked_fill_(skip, 0.0)
        size = y.abs().add_(want.scale[rows, None])
        yield rows, move, move / size, size


def _slices(
    got: torch.Tensor, target: torch.Tensor, want: ExpectedLeaf, cut: bool = False
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """Yield numbers of rows, and these rows of both tensors and of the mask of what is not compared, or None; `cut`: a single row comes in
    pieces."""
    assert want.scale is not None
    mine, theirs, skip = real(got), real(target), _skipped(want)
    if mine.numel() == 0:
        return
    cut = cut and want.scale.numel() == 1
    columns = 1 if cut else mine.numel() // want.scale.numel()
    most = CHUNK if got.device.type == "cpu" else 256 * CHUNK
    given = [t for t in (mine, theirs, skip) if t is not None]
    axis = next((d for d, size in enumerate(mine.shape) if size > 1), 0)
    inner = mine.numel() // mine.shape[axis] if mine.dim() else 1
    if inner % columns or all(t.is_contiguous() for t in given):
        # A reshape of a dense tensor is a view; of any other it is a copy, so those are cut along a dimension first.
        given, axis, inner = [t.reshape(-1, columns) for t in given], 0, columns
    step = max(1, most // inner)
    for start in range(0, given[0].shape[axis], step):
        length = min(step, given[0].shape[axis] - start)
        parts = [t.narrow(axis, start, length).reshape(-1, columns) for t in given]
        first = start * (inner // columns)
        rows = slice(0, 1) if cut else slice(first, first + length * (inner // columns))
        yield rows, parts[0], parts[1], parts[2] if skip is not None else None


def ratios(
    got: torch.Tensor, target: torch.Tensor, want: ExpectedLeaf
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return absolute error and error relative to the scale, by row; 0 where the reference is not finite, inf at a NaN."""
    assert want.scale is not None
    compute = torch.float64 if want.wide else torch.float32
    y = real(target).to(compute).reshape(len(want.scale), -1)
    move = (
        (real(got).to(compute).reshape(y.shape) - y)
        .abs()
        .nan_to_num_(nan=float("inf"), posinf=float("inf"))
    )
    if (skip := _skipped(want)) is not None:
        move = move.masked_fill(skip.reshape(y.shape), 0.0)
    return move, move / (y.abs() + want.scale[:, None])


def _skipped(want: ExpectedLeaf) -> torch.Tensor | None:
    """Return elements whose size is not compared: excluded ones, and those without a size."""
    if want.finite:
        return want.open
    infinite = ~real(want.same).isfinite()
    return infinite if want.open is None else infinite | want.open


def kinds_differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return a mask of elements where one of two real tensors is a NaN or an infinity and the other is not the same."""
    return (
        (one.isnan() != other.isnan())
        | (one.isinf() != other.isinf())
        | (other.isinf() & (one != other))
    )


def scales(reference: torch.Tensor) -> tuple[torch.Tensor, float, bool]:
    """Return the rows' scales, the whole output's, and whether all elements are finite.

    Args:
        reference: one floating or complex output of the reference.
    """
    elements = real(reference)
    if elements.numel() == 0:
        return torch.zeros(1, device=elements.device), TINY, True
    length = row_length(elements.shape)

    def sizes(of: torch.Tensor) -> torch.Tensor:
        return row_norms(of.reshape(-1, length)) / length**0.5

    by_row = sizes(elements)
    # Much quicker than a check of every element.
    finite = bool(by_row.isfinite().all()) or bool(elements.isfinite().all())
    if not finite:
        by_row = sizes(elements.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))
    rms = max(float(by_row.square().mean().sqrt()), TINY)
    wide = reference.dtype in (torch.float64, torch.complex128)
    return (
        by_row.clamp_(min=max(SHARE * rms, TINY)).to(torch.float64 if wide else torch.float32),
        rms,
        finite,
    )


def row_length(shape: torch.Size) -> int:
    """Return the elements per row: the smallest trailing block of at least `ROW`, or all."""
    length = 1
    for size in reversed(shape):
        length *= size
        if length >= ROW:
            break
    return length


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Return complex tensors as pairs of real ones."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """torch.equal, whose mask on a GPU takes a byte an element, by slices."""
    if a.numel() <= EQUAL_AT_ONCE or a.shape != b.shape:
        return torch.equal(steps(a), steps(b))
    return all(equal(one, other) for one, other in zip(_halves(a), _halves(b), strict=True))


def _halves(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    axis = max(range(tensor.dim()), key=lambda d: tensor.shape[d] > 1 and tensor.stride(d))
    return torch.tensor_split(tensor, 2, axis)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether dtype, shape and values are equal, NaN equal to itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if equal(a, b):
        return True
    if narrow(a) or not (a.is_floating_point() or a.is_complex()):
        return False
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _outline(leaves: list[Any], text: str) -> str:
    if text == "*" and leaves:
        return _shown(leaves[0])
    return text if len(text) <= 80 else text[:77] + "…"


def _shown(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return "a tensor"
    if isinstance(leaf, dict):
        return f"a {leaf.get('object', 'dict')}"[:80]
    return f"{type(leaf).__name__} {leaf!r}"[:80] if leaf is not None else "a NoneType"


def other_strides(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether the strides differ in a dimension of more than one element; other strides have no meaning."""
    return bool(got.numel()) and any(
        got.stride(d) != want.stride(d) for d in range(got.dim()) if got.shape[d] > 1
    )


def _outside(got: torch.Tensor, want: torch.Tensor, exact_strides: bool) -> str | None:
    pairs = [
        ("dtype", got.dtype, want.dtype),
        ("shape", tuple(got.shape), tuple(want.shape)),
        ("device", got.device, want.device),
        ("layout", got.layout, want.layout),
    ]
    for what, mine, theirs in pairs:
        if mine != theirs:
            return f"{what} {mine} instead of {theirs}"
    # A caller can view a contiguous tensor in every way; a caller may rely on the strides of any other.
    if other_strides(got, want) and (exact_strides or not got.is_contiguous()):
        return f"strides {tuple(got.stride())} instead of {tuple(want.stride())}"
    return None


def _special(got: torch.Tensor, want: ExpectedLeaf) -> Difference | None:
    if want.finite and want.open is None:
        return None
    mine, theirs = real(got), real(want.same)
    wrong = kinds_differ(mine, theirs)
    if want.vague:
        wrong &= ~theirs.isnan() | mine.isfinite()
    wrong = wrong if want.open is None else wrong & ~want.open
    count = int(wrong.sum())
    return (
        Difference(f"`{want.name}`: NaN or infinity differs at {count} of {wrong.numel()} elements")
        if count
        else None
    )


def _unequal(got: torch.Tensor, want: torch.Tensor) -> str:
    wrong = steps(got) != steps(want)
    at = index_of(int(wrong.reshape(-1).to(torch.uint8).argmax()), want.shape)
    return (
        f"{int(wrong.sum())} of {want.numel()} elements differ, first at {list(at)}: "
        f"{got[at].item()} instead of {want[at].item()}"
    )


def _difference(got: torch.Tensor, want: ExpectedLeaf, found: Errors) -> Difference:
    """Describe the error at elements that agree neither with the truth nor with the reference."""
    mine, first, largest, count, seen_before = real(got), 0, -1.0, 0, 0
    both = [sliced_ratios(got, target, want) for target in targets(want)]
    for found_by in zip(*both, strict=True):
        error = torch.stack([ratio for _, _, ratio, _ in found_by]).amin(0)
        count += int((error > want.admitted.worst).sum())
        place = int(error.argmax())
        if float(error.reshape(-1)[place]) > largest:
            first, largest = seen_before + place, float(error.reshape(-1)[place])
        seen_before += error.numel()
    at = index_of(first, mine.shape)
    seen = (
        f"worst at {list(at)}: {mine[at].item():.6g} instead of "
        f"{real(want.same)[at].item():.6g} (rms {want.rms:.3g})"
    )
    if count:
        text = f"{count:,} of {mine.numel():,} elements are off by more than {want.admitted.worst:.1e} of scale, {seen}"
    else:
        text = (
            f"the typical element is off by {found.typical:.1e} of scale, off by more than the admitted "
            f"{want.admitted.typical:.1e}: computed more coarsely than the reference; {seen}"
        )
    return Difference(f"`{want.name}`: {text}", largest)


def index_of(flat: int, shape: torch.Size) -> tuple[int, ...]:
    """Return the index of an element by its position in row-major order."""
    place = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        place.append(rest)
    return tuple(reversed(place))
