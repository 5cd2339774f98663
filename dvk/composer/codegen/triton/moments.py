"""Variance in one pass from shifted sums: Σ(x − k) and Σ(x − k)², k being the row's first element.

`centred` writes the differences into the kernel; for others `k…` is read here. The sums are independent of each other, so a row is read
once and no lane waits for the mean. The shift avoids the cancellation of E[x²] − E[x]²: only the distance d of the first element from the
mean cancels, which has the order of the deviation σ itself. The relative error of the variance is about ε·(1 + d²/σ²), and d²/σ² may be as
large as the number of elements, if the first is the only one that is far away: rows of heavy tails, or filled at their start. So where
d² > `FAR`·σ², the squares are summed again, around the mean (the second pass of Chan, Golub and LeVeque, Algorithms for computing the
sample variance, 1983). Few rows are like that, and the branch costs the others nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from dvk.composer.ir.loops import Instr

FAR = 16.0
"""Square of the distance in deviations from which a first element is too far from the mean: the squares have lost four bits."""


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

    def is_far(self, length: str, several: bool) -> str:
        """The condition, one for `several` rows or for one, that the squares are summed again; after `finish`. NaN is no reason."""
        total = f"g{self.first.id}"
        found = f"{total} * {total} * (1.0 / {length}) > {FAR} * v{self.second.id}"
        return f"tl.max(tl.max(({found}).to(tl.int32), 1), 0) > 0" if several else found

    def around(self, gap: str, mask: str, length: str) -> str:
        """The square of an element's distance from the mean, 0 outside of the row; `gap` is that from `k…`."""
        away = f"{gap} - g{self.first.id} * (1.0 / {length})"
        away = f"tl.where({mask}, {away}, 0.0)" if mask else f"({away})"
        return f"{away} * {away}"
