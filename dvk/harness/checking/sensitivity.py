"""Sensitivity: whether any correct program may show a deviation, near jumps and on ill-conditioned rows.

Computed only after a candidate was off by more than is admitted. The reference runs `NUM_NOISES` times with rounding noise of its precision
(`rounding_noise`). If the answer moves a little, its row is ill-conditioned (the norm of a constant row), and a candidate may be off by
`MARGIN` times as much. If it moves by more than the class's cap it jumps (rounding to a grid, thresholds, indices of near ties): two
correct programs differ by a whole step at the few elements on an edge, which need not be the same ones; so their number and their size must
be like those seen. If most elements jump, the output is pure rounding (the gradient of a bias before a batch norm), and only its size is
checked.

Edges may be too rare for those runs: one token in 65,536 whose second and third expert are equal up to the order of a sum. Up to `RARE`
elements are then excused if stronger noise moves each of them, too, and about as far (`on_edges`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dvk.harness.checking.compare import TINY, ExpectedLeaf, index_of, real, sliced_ratios, targets
from dvk.harness.checking.narrow_floats import are_codes, distance, narrow
from dvk.harness.checking.tolerance import NONE, Class, Errors, separation

NUM_NOISES = 3
NUM_ALIKE = 4
"""Further runs of a reference that quantises, with noise that is the same for all elements of a result."""
FEW = 1e-3
"""Largest share of elements on an edge."""
MOST = 0.5
MOST_BY_ONE = 0.25
"""Largest share of codes that rounding noise moves by one step, on inputs that are compared."""
RARE, MOST_RUNS = 4, 12
"""Most such elements, and runs in which each of them must move once."""
MARGIN = 16.0
"""Factor for honest programs, which sum in another order over many terms, while the noise changes each operator once by up to one unit; the
next coarser class is thousands of units away (fp32), or excluded by `lower` (half)."""


@dataclass(frozen=True)
class Sensitivity:
    """Movement of one output under rounding noise, over all runs."""

    count: int = 0
    """Mask of moves by more than is admitted."""
    size: float = 0.0
    """The largest of them relative to the scale; inf for exact types."""
    jumps: int = 0
    """Mask of moves by more than the class's cap; any change of an exact type."""
    rows: torch.Tensor | None = None
    """By row, the largest move that is no jump, absolute."""
    typical: float = 0.0
    """Root mean square of those moves relative to the scale."""
    rounding: float = 0.0
    """The largest move, absolute, if the output is pure rounding; else 0."""
    steps: torch.Tensor | None = None
    """By how many codes each element moved, at most, if the output is quantised."""


def measure(
    expected: Sequence[ExpectedLeaf], disturbed: Sequence[Sequence[Any]], cap: float
) -> list[Sensitivity]:
    """Return the sensitivity of each output leaf.

    Args:
        expected: the undisturbed answer.
        disturbed: the leaves of each disturbed run.
        cap: larger moves relative to the scale are jumps.
    """
    return [_measure(want, [run[i] for run in disturbed], cap) for i, want in enumerate(expected)]


def excused(
    got: torch.Tensor,
    want: ExpectedLeaf,
    sensitivity: Sensitivity,
    precision: Class,
    equal_terms: bool,
) -> Errors | None:
    """Return the errors without edges and ill-conditioned rows; None if that excuses nothing.

    If many terms are equal their roundings do not cancel: the norm of a constant row depends entirely on how the mean was summed, and must
    only be finite.
    """
    moved = 2 * sensitivity.count + 4 if sensitivity.count else 0
    few = min(max(8, FEW * got.numel()), moved)
    if want.scale is None:
        steps = distance(got, want.same)
        if sensitivity.steps is None:
            return NONE if int((steps != 0).sum()) <= few else None
        # A value near a boundary rounds to either code: one that moved may, and a few others by no more.
        steps = steps.masked_fill(steps <= sensitivity.steps, 0)
        like_seen = int((steps != 0).sum()) <= few and int(steps.max()) <= sensitivity.size
        return NONE if like_seen else None
    if sensitivity.rounding:
        moves = (float(move.max()) for _, move, _, _ in sliced_ratios(got, want.same, want))
        return NONE if all(m <= MARGIN * sensitivity.rounding for m in moves) else None
    for target in targets(want):
        off, firm, rest = _split(got, target, want, sensitivity, precision, equal_terms, moved)
        if not _as_seen(off, sensitivity, moved, few, precision.cap):
            continue
        # Each element of an ill-conditioned row is held to its row's noise; the typical element is computed from the other rows.
        left = (rest if not firm.count and not equal_terms else firm).errors
        if left.typical <= _typical(want, sensitivity, precision):
            return left
    return None


@dataclass
class _Kept:
    """Errors of some elements, summed up."""

    count: int = 0
    squares: float = 0.0
    worst: float = 0.0

    def add(self, ratio: torch.Tensor, where: torch.Tensor) -> None:
        """Add the elements of a mask."""
        kept = ratio.masked_fill(~where, 0.0)
        self.count += int(where.sum())
        self.squares += float(kept.square().sum(dtype=torch.float64))
        self.worst = max(self.worst, float(kept.max()))

    @property
    def errors(self) -> Errors:
        """Return their typical and worst error."""
        return Errors((self.squares / self.count) ** 0.5, self.worst) if self.count else NONE


def _split(
    got: torch.Tensor,
    target: torch.Tensor,
    want: ExpectedLeaf,
    sensitivity: Sensitivity,
    precision: Class,
    equal_terms: bool,
    most: int,
) -> tuple[list[float], _Kept, _Kept]:
    """Return the errors that are off, those of the other elements on firm rows, and those of all others; stops at `most` that are off."""
    off: list[float] = []
    firmly, all_others = _Kept(), _Kept()
    for rows, _, ratio, size in sliced_ratios(got, target, want):
        noise = torch.zeros_like(ratio)
        if sensitivity.rows is not None:
            noise += MARGIN * sensitivity.rows[rows, None] / size
        firm = noise <= want.admitted.worst
        beyond = ratio > torch.where(
            firm, want.admitted.worst, noise.clamp_(max=max(precision.cap, want.admitted.worst))
        )
        if equal_terms:
            beyond &= firm | ~ratio.isfinite()
        firmly.add(ratio, ~beyond & firm)
        all_others.add(ratio, ~beyond)
        off += ratio[beyond].tolist() if int(beyond.sum()) <= most else [math.inf] * (most + 1)
        if len(off) > most:
            break
    return off, firmly, all_others


def coded(want: ExpectedLeaf) -> bool:
    """Whether an output is quantised."""
    return narrow(want.same) or (are_codes(want.same) and not want.places)


def arbitrary_at_ties(expected: Sequence[ExpectedLeaf]) -> bool:
    """Whether some output holds indices or classes, which equal values make arbitrary."""
    exact = (e for e in expected if e.scale is None and isinstance(e.same, torch.Tensor))
    return any(not coded(e) for e in exact)


def on_edges(
    got: torch.Tensor,
    want: ExpectedLeaf,
    sensitivity: Sensitivity,
    precision: Class,
    runs: Iterable[torch.Tensor],
) -> Errors | None:
    """Return errors as `excused`, for a few elements that did not move but do so under stronger noise, at least half as far as `got` is off
    there; None if one of them does not.

    Args:
        runs: this output under stronger noise; consumed only as far as needed.
    """
    if want.scale is None and coded(want):
        return _codes_on_edges(got, want, runs)
    if want.scale is None:
        places = (got != want.same).flatten().nonzero()[:, 0]
        error, left = _move(got, want).flatten()[places], NONE
    else:
        counts = [_off(got, target, want) for target in targets(want)]
        places, error, kept, finite = min(counts, key=lambda one: len(one[0]))
        left = kept.errors
        if not finite or left.typical > _typical(want, sensitivity, precision):
            return None
    if not 0 < len(places) <= RARE:
        return None
    firm = torch.ones_like(places, dtype=torch.bool)
    for run in runs:
        if not isinstance(run, torch.Tensor) or run.shape != want.same.shape:
            return None
        move = _move_at(run, want, places)
        firm &= ~((error <= 2 * move) & move.isfinite())
        if not bool(firm.any()):
            return left
    return None


def _codes_on_edges(
    got: torch.Tensor, want: ExpectedLeaf, runs: Iterable[torch.Tensor]
) -> Errors | None:
    """Return no errors if every code that is off is as far off in some run; many may be, where the arithmetic is as coarse as a step."""
    left = distance(got, want.same)
    if int((left != 0).sum()) > MOST * left.numel():
        return None
    for run in runs:
        if not isinstance(run, torch.Tensor) or run.shape != want.same.shape:
            return None
        left = left.masked_fill(left <= distance(run, want.same), 0)
        if not bool(left.any()):
            return NONE
    return NONE if int((left != 0).sum()) <= RARE and int(left.max()) <= 1 else None


def jumpy(expected: Sequence[ExpectedLeaf], disturbed: Sequence[Any], cap: float) -> bool:
    """Whether some output jumps at many elements under noise. Codes may move by one step each: then their values are near a boundary."""
    for want, found in zip(expected, measure(expected, [disturbed], cap), strict=True):
        if not isinstance(want.same, torch.Tensor) or found.rounding:
            continue
        by_one = found.steps is not None and found.size <= 1
        share = MOST_BY_ONE if by_one else FEW / 2
        if found.jumps > max(4, share * want.same.numel()):
            return True
    return False


def _off(
    got: torch.Tensor, target: torch.Tensor, want: ExpectedLeaf
) -> tuple[torch.Tensor, torch.Tensor, _Kept, bool]:
    """Return positions of elements that are off, at most one more than `RARE` a slice, their absolute errors, the errors of all others, and
    whether all are finite."""
    kept, finite, before = _Kept(), True, 0
    places, errors_off = [], []
    for _, move, ratio, _ in sliced_ratios(got, target, want):
        off = ratio > want.admitted.worst
        kept.add(ratio, ~off)
        finite &= bool(ratio.isfinite().all())
        if bool(off.any()):
            indices = off.flatten().nonzero()[: RARE + 1, 0]
            places.append(indices + before)
            errors_off.append(move.flatten()[indices])
        before += ratio.numel()
    if not places:
        none = torch.zeros(0, device=got.device)
        return none.long(), none, kept, finite
    return torch.cat(places), torch.cat(errors_off), kept, finite


def _move(run: torch.Tensor, want: ExpectedLeaf) -> torch.Tensor:
    """Return each element's distance from the reference's."""
    return (run.double() - want.same.double()).abs()


def _move_at(run: torch.Tensor, want: ExpectedLeaf, places: torch.Tensor) -> torch.Tensor:
    """Return the distance of a few elements from the reference's, by their positions."""
    mine, theirs = real(run), real(want.same)
    pairs = [(mine[at], theirs[at]) for at in (index_of(int(n), mine.shape) for n in places)]
    return torch.stack([(a.double() - b.double()).abs() for a, b in pairs]).nan_to_num(nan=math.inf)


def _as_seen(
    off: list[float], sensitivity: Sensitivity, moved: int, few: float, cap: float
) -> bool:
    """Whether the number and size of the jumps are like those observed."""
    if not off:
        return True
    largest = max(off)
    return (
        len(off) <= moved
        and sum(one > cap for one in off) <= few
        and largest <= 2 * sensitivity.size
        and largest < float("inf")
    )


def _measure(want: ExpectedLeaf, runs: list[Any], cap: float) -> Sensitivity:
    if not isinstance(want.same, torch.Tensor) or not want.same.numel():
        return Sensitivity()
    count, jumps, size, squares, rows, steps = 0, 0, 0.0, 0.0, None, None
    largest = 0.0
    for run in runs:
        if not isinstance(run, torch.Tensor) or run.shape != want.same.shape:
            return Sensitivity(want.same.numel(), float("inf"), want.same.numel())
        if want.scale is None:
            moved = distance(run, want.same)
            jumps += int((moved != 0).sum())
            count, size = jumps, float("inf")
            if coded(want):
                steps = moved if steps is None else torch.maximum(steps, moved)
                size = float(steps.max())
            continue
        found: list[torch.Tensor] = []
        total = 0.0
        for _, move, ratio, _ in sliced_ratios(run, want.same, want):
            moved = ratio > want.admitted.worst
            if bool(moved.any()):
                count, size = count + int(moved.sum()), max(size, float(ratio.max()))
            jumped = ratio > cap
            largest = max(largest, float(move.max()))
            if bool(jumped.any()):
                jumps += int(jumped.sum())
                move, ratio = move.masked_fill(jumped, 0.0), ratio.masked_fill(jumped, 0.0)
            total += float(ratio.square().sum(dtype=torch.float64))
            found.append(move.amax(1))
        squares, moves = max(squares, total / real(want.same).numel()), torch.cat(found)
        rows = moves if rows is None else torch.maximum(rows, moves)
    most = want.rms <= TINY or jumps > MOST * len(runs) * want.same.numel()
    rounding = largest if most and want.scale is not None else 0.0
    return Sensitivity(count, size, jumps, rows, squares**0.5, rounding, steps)


def _typical(want: ExpectedLeaf, sensitivity: Sensitivity, precision: Class) -> float:
    """Return the typical error admitted for an ill-conditioned output: more, as long as the next coarser class would need still more; and
    the noise's effect, if that class is not separated anyway."""
    if want.once:
        return want.admitted.typical
    most = precision.ceiling.typical
    if want.lower.typical == want.lower.typical and want.lower.typical > 0:
        most = min(most, want.lower.typical / 3)
    admitted = max(want.admitted.typical, min(MARGIN * sensitivity.typical, most))
    return (
        admitted
        if separation(want.admitted, want.own, want.lower) > 1
        else max(admitted, 3 * sensitivity.typical)
    )
