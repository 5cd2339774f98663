"""Groups of primitives that become kernels, and the partition of a graph into them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dvk.composer.ir.affine import Affine, Index, Var
from dvk.composer.ir.effects import checks, draws, is_step, walk_refs, written
from dvk.composer.ir.nodes import IRNode, View, operand_index
from dvk.composer.lowering.dispatch import FINITE
from dvk.composer.lowering.whole_graph import PrimGraph


@dataclass(frozen=True)
class Fold:
    """A value that a group adds up over the rows of each block (`column_sums`)."""

    partial: IRNode
    """The sums: blocks × elements of a row."""
    value: IRNode
    offset: Affine
    """Place in a row of sums."""


@dataclass(eq=False)
class FusionGroup:
    """A future kernel: members in execution order, each with its index."""

    members: list[IRNode]
    index: dict[IRNode, Index]
    inner: dict[IRNode, Index]
    """For reductions, the index into the operand."""
    reduced: frozenset[Var]
    order: list[Var]
    """Loop variables, outermost first."""
    folds: list[Fold] = field(default_factory=list)
    partials: dict[IRNode, tuple[IRNode, Affine]] = field(default_factory=dict)
    """Sums that read what another group has added up in blocks, and where."""

    @property
    def added_up(self) -> list[IRNode]:
        """Values that other groups add up for this one."""
        return [
            o.base for p, _ in self.partials.values() for o in p.operands if isinstance(o, View)
        ]

    @property
    def rows(self) -> int:
        return math.prod(v.size for v in self.order if v not in self.reduced)

    @property
    def row_length(self) -> int:
        return math.prod(v.size for v in self.reduced)

    def is_row_level(self, prim: IRNode) -> bool:
        """The value exists once per row, not once per element."""
        return not any(part.vars & self.reduced for part in self.index[prim]) and bool(self.reduced)

    @property
    def is_windowed(self) -> bool:
        """The group reduces windows, whose results are many: their consumers run in the same place."""
        return any(p.attrs.get("window") for p in self.members)

    def reads(self, prim: IRNode, position: int) -> Index | None:
        return operand_index(prim, position, self.index[prim], self.inner.get(prim, ()))


@dataclass
class Partition:
    """Groups and the order in which the host runs groups and extern calls."""

    groups: list[FusionGroup]
    schedule: list[FusionGroup | IRNode]
    users: dict[IRNode, list[IRNode]]
    escapes: frozenset[IRNode] = field(default_factory=frozenset)
    """Values needed outside the group that computes them."""


def live(graph: PrimGraph) -> list[IRNode]:
    """Primitives that an output or a side effect needs, in order."""
    needed = set(output_bases(graph))
    for prim in reversed(graph.prims):
        if (
            prim.kind == "extern"
            and prim.node is not None
            and (_has_effect(prim) or prim.op == FINITE)
        ):
            needed.add(prim)
        if prim in needed:
            needed.update(o.base for o in prim.operands if isinstance(o, View))
    return [p for p in graph.prims if p in needed]


def output_bases(graph: PrimGraph) -> set[IRNode]:
    result: set[IRNode] = set()

    def collect(value: object) -> None:
        if isinstance(value, View):
            result.add(value.base)
        elif isinstance(value, tuple):
            for part in value:
                collect(part)

    walk_refs(graph.outputs, lambda name: collect(graph.values[name]))
    return result


def _has_effect(prim: IRNode) -> bool:
    """Writes memory, draws random numbers or only raises, so it runs even if no operator reads it."""
    return prim.node is not None and bool(
        written(prim.node) or draws(prim.node) or checks(prim.node) or is_step(prim.node)
    )
