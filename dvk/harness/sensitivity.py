"""Whether a deviation is one that any correct program may show: near jumps, and on ill-conditioned rows.

Asked only after a candidate was off by more than is admitted. The reference runs `NUM_NOISES` times
with rounding noise of its own precision (`shaking`). Where the answer moves a little, its row is
ill-conditioned (the norm of a constant row), and a candidate may be off by `MARGIN` times as much.
Where it moves by more than the class's cap it jumps (rounding to a grid, thresholds, indices of near
ties): two correct programs differ by a whole step at the few elements on an edge, which need not be
the same ones; so their number and their size must be like those seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dvk.harness.compare import Expected, ratios, real, targets
from dvk.harness.tolerance import Class, Errors

NUM_NOISES = 3
FEW = 1e-3
"""Share of elements that may sit on an edge."""
MARGIN = 16.0
"""An honest program sums in another order over many terms, where the noise disturbs each operator once by up to one
unit; the next coarser class is thousands of units away (fp32), or held off by `lower` (half)."""


@dataclass(frozen=True)
class Sensitivity:
    """How one output moves under rounding noise."""

    count: int
    """Elements that jumped, in all runs together."""
    size: float
    """The largest jump relative to the scale; inf for exact types."""
    rows: torch.Tensor | None
    """By row, the largest small move, absolute."""
    typical: float
    """Root mean square of small moves relative to the scale."""


def measure(expected: Sequence[Expected], disturbed: Sequence[Sequence[Any]], cap: float) -> list[Sensitivity]:
    """By output leaf.

    Args:
        expected: the undisturbed answer.
        disturbed: the leaves of each disturbed run.
        cap: larger moves relative to the scale are jumps.
    """
    return [_measure(want, [run[i] for run in disturbed], cap) for i, want in enumerate(expected)]


def _measure(want: Expected, runs: list[Any], cap: float) -> Sensitivity:
    count, size, squares, rows = 0, 0.0, 0.0, None
    if not isinstance(want.same, torch.Tensor):
        return Sensitivity(0, 0.0, None, 0.0)
    for run in runs:
        if not isinstance(run, torch.Tensor) or run.shape != want.same.shape:
            return Sensitivity(want.same.numel(), float("inf"), None, float("inf"))
        if want.scale is None:
            count, size = count + int((run != want.same).sum()), float("inf")
            continue
        move, ratio = ratios(run, want.same, want)
        jumped = ~(ratio <= cap)
        if bool(jumped.any()):
            count += int(jumped.sum())
            size = max(size, float(ratio[jumped].nan_to_num(nan=float("inf")).max()))
            move, ratio = move.masked_fill(jumped, 0.0), ratio.masked_fill(jumped, 0.0)
        squares = max(squares, float(ratio.square().mean()))
        rows = move.amax(1) if rows is None else torch.maximum(rows, move.amax(1))
    return Sensitivity(count, size, rows, squares**0.5)


def excused(got: torch.Tensor, want: Expected, found: Sensitivity, precision: Class) -> Errors | None:
    """The errors of what is left when edges and ill-conditioned rows are set aside; None when that excuses nothing."""
    few = max(8, FEW * got.numel())
    if want.scale is None:
        return Errors(0.0, 0.0) if 0 < int((got != want.same).sum()) <= min(few, 2 * found.count + 4 if found.count else 0) else None
    for target in targets(want):
        _, ratio = ratios(got, target, want)
        admitted = torch.full_like(ratio, want.admitted.worst)
        if found.rows is not None:
            noise = MARGIN * found.rows[:, None] / (real(target).reshape(ratio.shape).abs() + want.scale[:, None])
            admitted = torch.maximum(admitted, noise.to(ratio.dtype).clamp_(max=precision.cap))
        off = ~(ratio <= admitted)
        count = int(off.sum())
        if count and (not found.count or count > min(few, 2 * found.count + 4) or not float(ratio[off].max()) <= 2 * found.size):
            continue
        left = ratio[~off]
        # On ill-conditioned rows each element is held to its row's noise; the typical element is sought on the others.
        firm = ratio[~off & (admitted <= want.admitted.worst)]
        typical = float((firm if firm.numel() else left).square().mean().sqrt()) if left.numel() else 0.0
        if typical <= _typical(want, found, precision):
            return Errors(typical, float(left.max()) if left.numel() else 0.0)
    return None


def _typical(want: Expected, found: Sensitivity, precision: Class) -> float:
    """Admitted for the typical element of an ill-conditioned output: less than the next coarser class would need."""
    most = precision.ceiling.typical
    if want.lower.typical == want.lower.typical and want.lower.typical > 0:
        most = min(most, want.lower.typical / 3)
    return max(want.admitted.typical, min(MARGIN * found.typical, most))
