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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dvk.harness.checking.compare import TINY, ExpectedLeaf, ratios, real, targets
from dvk.harness.checking.tolerance import NONE, Class, Errors, separation

NUM_NOISES = 3
FEW = 1e-3
"""Largest share of elements on an edge."""
MOST = 0.5
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
        return NONE if int((got != want.same).sum()) <= few else None
    if sensitivity.rounding:
        return (
            NONE
            if bool(((real(got) - real(want.same)).abs() <= MARGIN * sensitivity.rounding).all())
            else None
        )
    for target in targets(want):
        _, ratio = ratios(got, target, want)
        noise = torch.zeros_like(ratio)
        if sensitivity.rows is not None:
            noise += (
                MARGIN
                * sensitivity.rows[:, None]
                / (real(target).reshape(ratio.shape).abs() + want.scale[:, None])
            )
        firm = noise <= want.admitted.worst
        off = ratio > torch.where(
            firm, want.admitted.worst, noise.clamp_(max=max(precision.cap, want.admitted.worst))
        )
        if equal_terms:
            off &= firm | ~ratio.isfinite()
        if not _as_seen(ratio[off], sensitivity, moved, few, precision.cap):
            continue
        # Each element of an ill-conditioned row is held to its row's noise; the typical element is computed from the other rows.
        kept = ratio[~off & firm]
        if kept.numel() == 0 and not equal_terms:
            kept = ratio[~off]
        left = (
            Errors(float(kept.square().mean().sqrt()), float(kept.max())) if kept.numel() else NONE
        )
        if left.typical <= _typical(want, sensitivity, precision):
            return left
    return None


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
    if want.scale is None:
        off, error, left = (got != want.same).flatten(), _move(got, want), NONE
    else:
        found_by = [ratios(got, target, want) for target in targets(want)]
        error, ratio = min(found_by, key=lambda both: int((both[1] > want.admitted.worst).sum()))
        off = (ratio > want.admitted.worst).flatten()
        kept = ratio.flatten()[~off]
        left = (
            Errors(float(kept.square().mean().sqrt()), float(kept.max())) if kept.numel() else NONE
        )
        if not bool(ratio.isfinite().all()) or left.typical > _typical(
            want, sensitivity, precision
        ):
            return None
    if not 0 < int(off.sum()) <= RARE:
        return None
    places = off.nonzero()[:, 0]
    error = error.flatten()[places]
    firm = torch.ones_like(places, dtype=torch.bool)
    for run in runs:
        if not isinstance(run, torch.Tensor) or run.shape != want.same.shape:
            return None
        move = _move(run, want).flatten()[places]
        firm &= ~((error <= 2 * move) & move.isfinite())
        if not bool(firm.any()):
            return left
    return None


def _move(run: torch.Tensor, want: ExpectedLeaf) -> torch.Tensor:
    """Return each element's distance from the reference's."""
    return (
        (run.double() - want.same.double()).abs()
        if want.scale is None
        else ratios(run, want.same, want)[0]
    )


def _as_seen(
    off: torch.Tensor, sensitivity: Sensitivity, moved: int, few: float, cap: float
) -> bool:
    """Whether the number and size of the jumps are like those observed."""
    if off.numel() == 0:
        return True
    largest = float(off.max())
    return (
        off.numel() <= moved
        and int((off > cap).sum()) <= few
        and largest <= 2 * sensitivity.size
        and largest < float("inf")
    )


def _measure(want: ExpectedLeaf, runs: list[Any], cap: float) -> Sensitivity:
    if not isinstance(want.same, torch.Tensor) or not want.same.numel():
        return Sensitivity()
    count, jumps, size, squares, rows = 0, 0, 0.0, 0.0, None
    largest = 0.0
    for run in runs:
        if not isinstance(run, torch.Tensor) or run.shape != want.same.shape:
            return Sensitivity(want.same.numel(), float("inf"), want.same.numel())
        if want.scale is None:
            jumps += int((run != want.same).sum())
            count, size = jumps, float("inf")
            continue
        move, ratio = ratios(run, want.same, want)
        moved = ratio > want.admitted.worst
        if bool(moved.any()):
            count, size = count + int(moved.sum()), max(size, float(ratio.max()))
        jumped = ratio > cap
        largest = max(largest, float(move.max()))
        if bool(jumped.any()):
            jumps += int(jumped.sum())
            move, ratio = move.masked_fill(jumped, 0.0), ratio.masked_fill(jumped, 0.0)
        squares = max(squares, float(ratio.square().mean()))
        rows = move.amax(1) if rows is None else torch.maximum(rows, move.amax(1))
    most = want.rms <= TINY or jumps > MOST * len(runs) * want.same.numel()
    return Sensitivity(count, size, jumps, rows, squares**0.5, largest if most else 0.0)


def _typical(want: ExpectedLeaf, sensitivity: Sensitivity, precision: Class) -> float:
    """Return the typical error admitted for an ill-conditioned output: more, as long as the next coarser class would need still more; and
    the noise's effect, if that class is not separated anyway."""
    most = precision.ceiling.typical
    if want.lower.typical == want.lower.typical and want.lower.typical > 0:
        most = min(most, want.lower.typical / 3)
    admitted = max(want.admitted.typical, min(MARGIN * sensitivity.typical, most))
    return (
        admitted
        if separation(want.admitted, want.own, want.lower) > 1
        else max(admitted, 3 * sensitivity.typical)
    )
