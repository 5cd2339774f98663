"""Variance in one pass from shifted sums: Σ(x − k) and Σ(x − k)², k being the row's first element.

`centred` writes the differences into the kernel; for others `k…` is read here. The sums are independent of each other, so a row is read
once and no lane waits for the mean. The shift avoids the cancellation of E[x²] − E[x]²: only the distance of the first element from the
mean cancels, which has the order of the deviation itself. A row whose first element is an outlier by n deviations loses log₁₀ n digits.
"""

from __future__ import annotations

from dataclasses import dataclass

from dvk.composer.ir.loops import Instr


@dataclass(frozen=True)
class MomentsPair:
    """The sum of differences from the first element, and the sum of (x − mean)² from those and their squares."""

    first: Instr
    second: Instr
    shifts: bool
    """The operand is x, and not yet its difference from `k…`."""

    def gap(self, x: str) -> str:
        """The difference from `k…`."""
        return f"{x} - k{self.first.id}" if self.shifts else x

    def step(self, x: str, mask: str, tiles: str) -> list[str]:
        """Lines that add one more tile to `acc…`."""
        del tiles
        gap = self.gap(x)
        return [
            f"gap = tl.where({mask}, {gap}, 0.0)" if mask else f"gap = {gap}",
            f"acc{self.first.id} += gap",
            f"acc{self.second.id} += gap * gap",
        ]

    def partial(self, reduce: Instr, prefix: str, count: str, length: str, piece: bool) -> str:
        """The sum over lanes alone; `finish` completes it."""
        del count, length, piece
        return f"{prefix}{reduce.id}"

    def finish(self, reduce: Instr, folded: str, length: str) -> list[str]:
        """Lines that compute the reduction's value from the folded sum."""
        total = f"g{self.first.id}"
        if reduce is self.first:
            around = f" + k{reduce.id} * {length}" if self.shifts else ""
            return [f"{total} = {folded}", f"v{reduce.id} = {total}{around}"]
        value = f"{folded} - {total} * {total} * (1.0 / {length})"
        return [f"v{reduce.id} = tl.maximum({value}, 0.0, propagate_nan=tl.PropagateNan.ALL)"]
