"""Compare what a candidate returned with what the reference returned: outside, then every element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

CHUNK = 1 << 20
"""Elements compared at a time on a CPU: temporaries stay in the cache; 64 times as many on a GPU."""


@dataclass
class Expected:
    """One output leaf of the reference.

    `same` is what the reference computed; `truth` the same in float64, rounded to float32 unless that would show,
    or None where there is none; `rms` the output's scale; `tolerance` the admitted error, 0 for exact types.
    """

    name: str
    same: Any
    truth: torch.Tensor | None
    rms: float
    tolerance: float
    finite: bool


@dataclass(frozen=True)
class Difference:
    """Why an output is wrong, how far off it is (nan where that has no size), at how many elements (-1: unknown)."""

    text: str
    error: float = float("nan")
    count: int = -1


def structure(got: Any, spec: pytree.TreeSpec, expected: list[Expected]) -> tuple[list[Any], Difference | None]:
    """Leaves of `got`, or how its nesting, dtypes, shapes, strides, devices or constants differ."""
    leaves, shape = pytree.tree_flatten(got)
    if shape != spec:
        return [], Difference(f"the output is {_outline(got, shape)} instead of {spec_text(spec)}")
    for leaf, want in zip(leaves, expected, strict=True):
        if not isinstance(want.same, torch.Tensor):
            if type(leaf) is not type(want.same) or leaf != want.same:
                return [], Difference(f"`{want.name}` is {leaf!r:.80} instead of {want.same!r:.80}")
            continue
        if not isinstance(leaf, torch.Tensor):
            return [], Difference(f"`{want.name}` is a {type(leaf).__name__} instead of a tensor")
        if (difference := _outside(leaf, want.same)) is not None:
            return [], Difference(f"`{want.name}` has {difference}")
    return leaves, None


def values(got: torch.Tensor, want: Expected) -> tuple[float, Difference | None]:
    """The worst error relative to the output's scale, and what is wrong if it exceeds the tolerance.

    The candidate may agree with the float64 truth or with the reference itself; one of them throughout.
    """
    if not (got.is_floating_point() or got.is_complex()):
        if torch.equal(got, want.same):
            return 0.0, None
        return float("nan"), Difference(
            f"`{want.name}`: {_unequal(got, want.same)}", float("inf"), int((got != want.same).sum())
        )
    same, truth = want.same, want.truth
    if got.is_complex():
        got, same = torch.view_as_real(got.resolve_conj()), torch.view_as_real(same.resolve_conj())
        truth = None if truth is None else torch.view_as_real(truth)
    if not want.finite:
        if (difference := _special(got, same, want.name)) is not None:
            return float("nan"), difference
        mask = same.isfinite()
        got, same = got[mask], same[mask]
        truth = None if truth is None else truth[mask]
    ratios = []
    for target in (truth, same):
        if target is not None:
            ratios.append(worst_ratio(got, target, want.rms, want.tolerance))
            if ratios[-1] <= 1.0:
                return ratios[-1] * want.tolerance, None
    return float("nan"), _difference(got, truth, same, want)


def worst_ratio(got: torch.Tensor, want: torch.Tensor, rms: float, tolerance: float) -> float:
    """Largest error in units of what is admitted; nan when there is a NaN, so compare with `not (… <= 1)`."""
    if got.numel() == 0:
        return 0.0
    compute = torch.float64 if tolerance < 1e-6 else torch.float32  # float32's own rounding must not show
    chunk = CHUNK if got.device.type == "cpu" else 64 * CHUNK
    mine, theirs = got.reshape(-1), want.reshape(-1)
    found = []
    for start in range(0, mine.numel(), chunk):
        y = theirs[start : start + chunk].to(compute)
        error = (mine[start : start + chunk].to(compute) - y).abs_()
        found.append(error.div_(y.abs().add_(rms).mul_(tolerance)).max())
    return float(torch.stack(found).max())


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal dtype, shape and values, NaN equal to itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if torch.equal(a, b):
        return True
    if not (a.is_floating_point() or a.is_complex()):
        return False
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def spec_text(spec: pytree.TreeSpec) -> str:
    """A pytree's outline for a message."""
    return "one value" if spec.is_leaf() else f"{getattr(spec.type, '__name__', spec.type)} of {spec.num_children}"


def _outline(value: Any, spec: pytree.TreeSpec) -> str:
    return f"a {type(value).__name__}" if spec.is_leaf() else spec_text(spec)


def _outside(got: torch.Tensor, want: torch.Tensor) -> str | None:
    pairs = [
        ("dtype", got.dtype, want.dtype),
        ("shape", tuple(got.shape), tuple(want.shape)),
        ("device", got.device, want.device),
        ("layout", got.layout, want.layout),
    ]
    for what, mine, theirs in pairs:
        if mine != theirs:
            return f"{what} {mine} instead of {theirs}"
    # The stride of a dimension with one element means nothing.
    strides = [(d, got.stride(d), want.stride(d)) for d in range(got.dim()) if got.shape[d] > 1] if got.numel() else []
    if any(mine != theirs for _, mine, theirs in strides):
        return f"strides {tuple(got.stride())} instead of {tuple(want.stride())}"
    return None


def _special(got: torch.Tensor, want: torch.Tensor, name: str) -> Difference | None:
    wrong = (got.isnan() != want.isnan()) | (got.isinf() != want.isinf()) | (want.isinf() & (got != want))
    count = int(wrong.sum())
    return Difference(f"`{name}`: NaN or infinity differs at {count} of {want.numel()} elements") if count else None


def _unequal(got: torch.Tensor, want: torch.Tensor) -> str:
    wrong = (got != want).reshape(-1)
    first = int(wrong.to(torch.uint8).argmax())
    return (
        f"{int(wrong.sum())} of {want.numel()} elements differ, first at {_index(first, want.shape)}: "
        f"{got.reshape(-1)[first].item()} instead of {want.reshape(-1)[first].item()}"
    )


def _difference(got: torch.Tensor, truth: torch.Tensor | None, same: torch.Tensor, want: Expected) -> Difference:
    """What is wrong at elements that agree neither with the truth nor with the reference."""
    mine = got.reshape(-1).double()
    error: torch.Tensor | None = None
    for target in (truth, same):
        if target is not None:
            theirs = target.reshape(-1).double()
            off = ((mine - theirs).abs() / (theirs.abs() + want.rms)).nan_to_num(nan=float("inf"), posinf=float("inf"))
            error = off if error is None else torch.minimum(error, off)
    assert error is not None
    first, count = int(error.argmax()), int((error > want.tolerance).sum())
    # Where infinities were set aside, positions have shifted and are not named.
    place = f" at {_index(first, want.same.shape)}" if got.shape == want.same.shape else ""
    text = (
        f"`{want.name}`: {count:,} of {mine.numel():,} elements are off by more than {want.tolerance:.1e} of scale, "
        f"worst{place}: "
        f"{mine[first].item():.6g} instead of {same.reshape(-1)[first].item():.6g} (rms {want.rms:.3g})"
    )
    return Difference(text, float(error[first]), count)


def _index(flat: int, shape: torch.Size) -> str:
    place = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        place.append(rest)
    return str(list(reversed(place)))
