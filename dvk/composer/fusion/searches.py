"""The instructions of `kth`: the value of a row that so many others are above, found by counting, without a sort.

Floats have the order of integers (`unorder` is the way back), so the value is searched as an integer, from its highest bits to its lowest:
a candidate is at most the value if few enough elements are below it. Each pass over the row counts for one candidate, or for three, which
decide on two bits at once. float16 and bfloat16 have fewer bits, and take fewer passes.

Elements are compared as floats: NaN is below no candidate, as it must be. The last candidate is infinity, so there are candidates below
-infinity. They are NaN, nothing is below them, and the search goes on above. Where NaN reach down to the place, they have to be counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import Argument, Ref
from dvk.composer.ir.nodes import IRNode

INFINITY = 0x7F800000
"""Infinity as an integer of the order."""
SAME = {"float32": 0, "bfloat16": 16, "float16": 13}
"""Lowest bits of an integer of the order that are 0 for all values of a type from 0 on, and 1 for those below."""


@dataclass
class Search:
    """A search for the largest integer that a test over the row accepts; it accepts all below, too."""

    emit: Callable[..., int]
    """`emit(op, arguments, type, type of the operands, variables, stage, prim=…)` of a kernel's builder returns an instruction's number."""
    prim: IRNode
    args: tuple[Argument, ...]
    """The operands."""
    vars: frozenset[Var]
    """Variables of the operands."""
    reduced: frozenset[Var]
    stage: int
    """Of the pass that is written; at first that of the operands."""

    def accepts(self, candidate: Argument) -> Ref:
        """Emit the test of one candidate in this pass."""
        raise NotImplementedError

    def searched(self, least: Argument, bits: int, unit: int) -> Argument:
        """Emit the passes.

        Args:
            least: where the search starts; not tested.
            bits: the range's, from `least` on, in units.
            unit: step of the last pass.
        """
        wide = int(self.prim.attrs["bits"])
        while bits:
            decided = bits % wide or wide
            bits -= decided
            first = least
            for n in range(1, 1 << decided):
                step = n * (unit << bits)
                candidate: Argument = (
                    self.row("add", (first, step), "int64")
                    if isinstance(first, Ref)
                    else first + step
                )
                accepted = self.accepts(candidate)
                least = self.row("where", (accepted, candidate, least), "int64", after=True)
            self.stage += 1
        return least

    def element(self, op: str, args: tuple[Argument, ...], type_: str, compute: str = "") -> Ref:
        """A value of each element."""
        kind = compute or type_
        return Ref(self.emit(op, args, type_, kind, self.vars, self.stage, prim=self.prim))

    def row(
        self,
        op: str,
        args: tuple[Argument, ...],
        type_: str,
        compute: str = "",
        after: bool = False,
    ) -> Ref:
        """A value of the row, before this pass or `after` it."""
        row, stage = self.vars - self.reduced, self.stage + after
        return Ref(self.emit(op, args, type_, compute or type_, row, stage, prim=self.prim))

    def total(self, of: Ref, kind: str) -> Ref:
        """The sum over the row, in this pass."""
        return self.row("reduce_sum", (of,), kind, after=True)


class Kth(Search):
    """See the module."""

    def accepts(self, candidate: Argument) -> Ref:
        bound = self.row("unorder", (candidate,), "float32", "int64")
        below = self.total(self.element("lt", (self.args[0], bound), "bool", "float32"), "int32")
        return self.row("le", (below, self.prim.attrs["below"]), "bool", "int32", after=True)

    def value(self) -> Ref:
        """Emit all instructions."""
        same = SAME[self.prim.dtype]
        nan = self.total(self.element("isnan", self.args, "bool", "float32"), "int32")
        found = self.searched(INFINITY + (1 << same) - (1 << 32), 32 - same, 1 << same)
        if same:
            whole = self.row("add", (found, (1 << same) - 1), "int64")
            negative = self.row("lt", (found, 0), "bool", "int64")
            found = self.row("where", (negative, whole, found), "int64")
        value = self.row("unorder", (found,), "float32", "int64")
        enough = self.row("gt", (nan, self.prim.attrs["above"]), "bool", "int32")
        return self.row("where", (enough, float("nan"), value), "float32")


class Mass(Search):
    """The last of the values, packed with their places, from which on the weights pass a limit: what is above it is within the limit."""

    def accepts(self, candidate: Argument) -> Ref:
        key, weight, limit = self.args
        there = self.element("ge", (key, candidate), "bool", "int64")
        mass = self.total(self.element("where", (there, weight, 0.0), "float32"), "float32")
        test = self.prim.attrs["test"]
        holds = self.row(test, (mass, limit), "bool", "float32", after=True)
        # Written in this way, a sum of NaN is as far as the comparison says.
        beyond = test in ("gt", "ge")
        return holds if beyond else self.row("not", (holds,), "bool", after=True)

    def value(self) -> Ref:
        """Emit all instructions: first the value is searched, then the place among its equals."""
        same, places = SAME[self.prim.attrs["of"]], self.prim.attrs["places"]
        found = self.searched(-(1 << 63), 32 - same, 1 << 32 + same)
        if same:
            whole = self.row("add", (found, (1 << same) - 1 << 32), "int64")
            negative = self.row("lt", (found, 0), "bool", "int64")
            found = self.row("where", (negative, whole, found), "int64")
        first = self.row("add", (found, (1 << 32) - (1 << places)), "int64")
        last = self.searched(first, places, 1)
        assert isinstance(last, Ref)
        return last


SEARCHES: dict[str, Callable[..., Kth | Mass]] = {"kth": Kth, "mass": Mass}
"""Reductions that are searches."""
