"""Linear attention with a decay, found in a loop over time steps: the form that chunks of steps compute as products of matrices.

    S ← g·S + k·vᵀ,   y = Σₖ q·S

with g a number for each step (or none), q and k over `inner`, v over `lanes`, and none of them from the state. With G the product of
decays up to a step of the chunk and S the state before it:

    y_i = G_i · qᵢ S + Σ_{j ≤ i} (G_i / G_j) (qᵢ·kⱼ) vⱼ

(Yang et al., Gated Linear Attention Transformers with Hardware-Efficient Training, 2024, section 4; Dao and Gu, Mamba-2, 2024, section 6.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dvk.composer.ir.time_scan import TimeScan

LEAST = 16
"""Smallest inner axis and lanes: a tensor core's tile."""


@dataclass(frozen=True)
class ChunkedForm:
    """Numbers of lines; lists are factors, numbers among them literals."""

    decay: tuple[Any, ...]
    keys: tuple[Any, ...]
    values: tuple[Any, ...]
    queries: tuple[Any, ...]
    scores: int
    """The line that holds the sum."""
    after: tuple[int, ...]
    """Lines that are computed from it, in order."""


def chunked_form(scan: TimeScan) -> ChunkedForm | None:
    """The parts of a loop that is linear attention, None if it is something else."""
    if len(scan.states) != 1 or scan.inner < 0 or scan.lanes < 0:
        return None
    if min(scan.sizes[scan.inner], scan.sizes[scan.lanes]) < LEAST or scan.compute != "float32":
        return None
    return _Match(scan).form()


class _Match:
    def __init__(self, scan: TimeScan):
        self.scan = scan
        self.from_state: set[int] = set()
        for n, line in enumerate(scan.lines):
            given = [g for g in line.given if type(g) is int] if line.op != "state" else []
            if line.op == "state" or self.from_state.intersection(given):
                self.from_state.add(n)

    def form(self) -> ChunkedForm | None:
        scan = self.scan
        ((_, end, axes),) = scan.states
        if not {scan.inner, scan.lanes} <= set(axes) or scan.lines[end].op != "add":
            return None
        held, added = scan.lines[end].given
        if added in self.from_state:
            held, added = added, held
        if type(held) is not int or type(added) is not int or added in self.from_state:
            return None
        decay = self._factors(held)
        state = [g for g in decay if g in self.from_state]
        if len(state) != 1 or scan.lines[state[0]].op != "state":
            return None
        keys, values, numbers = self._apart(self._factors(added))
        sums = [n for n, line in enumerate(scan.lines) if line.op == "sum" and n in self.from_state]
        if len(sums) != 1 or not keys or not values:
            return None
        factors = self._factors(scan.lines[sums[0]].given[0])
        queries = [f for f in factors if f != end]
        wide = [self._axes(f) & {scan.inner, scan.lanes} for f in queries]
        if factors.count(end) != 1 or self.from_state.intersection(
            f for f in queries if type(f) is int
        ):
            return None
        decays = [g for g in decay if g != state[0]]
        if {scan.inner} not in wide or any(scan.lanes in w for w in wide):
            return None
        if any(self._axes(g) & {scan.inner, scan.lanes} for g in decays):
            return None
        known = {state[0], end, held, sums[0]}
        after = [n for n in sorted(self.from_state) if n > sums[0] and n not in known]
        inside = self.from_state - known - set(after)
        if not all(self._is_part(n, end) for n in inside) or not self._stays_narrow(after, sums[0]):
            return None
        if any(r.line not in (*after, sums[0]) and r.line in self.from_state for r in scan.outputs):
            return None
        if any(r.line != end for r in scan.last):
            return None
        form = ChunkedForm(
            tuple(decays), tuple(keys), (*values, *numbers), tuple(queries), sums[0], tuple(after)
        )
        return None if self._is_wide(form) else form

    def _is_wide(self, form: ChunkedForm) -> bool:
        """A value that the parts are computed from spans both axes of the block: a chunk's steps leave no room for it."""
        lines = self.scan.lines
        pending = [*form.decay, *form.keys, *form.values, *form.queries, *form.after]
        pending += [r.line for r in self.scan.outputs]
        found = {form.scores}
        while pending:
            n = pending.pop()
            if type(n) is int and n not in found:
                found.add(n)
                pending += lines[n].given if lines[n].op not in ("state", "literal") else ()
        both = {self.scan.inner, self.scan.lanes}
        return any(both <= set(lines[n].axes) for n in found)

    def _is_part(self, n: int, end: int) -> bool:
        """A product on the way to the state or from it to the sum."""
        return self.scan.lines[n].op == "mul"

    def _stays_narrow(self, after: list[int], scores: int) -> bool:
        """What follows the sum reads no state, and has no inner axis."""
        allowed = {scores, *after}
        for n in after:
            line = self.scan.lines[n]
            if self.scan.inner in line.axes or line.op == "sum":
                return False
            if any(
                type(g) is int and g in self.from_state and g not in allowed for g in line.given
            ):
                return False
        return True

    def _axes(self, factor: Any) -> set[int]:
        return set(self.scan.lines[factor].axes) if type(factor) is int else set()

    def _factors(self, line: int) -> list[Any]:
        """A product taken apart where it spans both axes of the block or the state."""
        made = self.scan.lines[line]
        both = {self.scan.inner, self.scan.lanes} <= set(made.axes)
        if made.op == "mul" and (both or line in self.from_state):
            return [f for g in made.given for f in (self._factors(g) if type(g) is int else [g])]
        return [line]

    def _apart(self, factors: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Factors over the inner axis, over lanes, and over neither; nothing if one spans both."""
        keys, values, rest = list[Any](), list[Any](), list[Any]()
        for f in factors:
            inner, lanes = self.scan.inner in self._axes(f), self.scan.lanes in self._axes(f)
            if inner and lanes:
                return [], [], []
            (keys if inner else values if lanes else rest).append(f)
        return keys, values, rest


__all__ = ["ChunkedForm", "chunked_form"]
