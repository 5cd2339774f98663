"""Fusion rules of matmuls: the operations that may share a kernel with one.

The epilogue may hold operations that run once per element of the result. The prologue, in the load of an operand, may hold only cheap
operations: they are recomputed for every tile of the other operand. Two matmuls share a kernel if one operand's index space equals the
other's, so that both are sums over the same tiles.
"""

from __future__ import annotations

import math
from collections import Counter

from dvk.composer.fusion.groups import FusionGroup, Partition, live
from dvk.composer.ir.affine import Var
from dvk.composer.ir.nodes import BYTES, IRNode, View, broadcast_index
from dvk.composer.ir.primitives import PRIMITIVES
from dvk.composer.lowering.view_pushdown import SUMMED
from dvk.composer.lowering.whole_graph import PrimGraph

CHEAP_OPS = 3
"""Operations that may be recomputed for every tile of the other operand: a scale, an activation of one or two steps, a mask."""
MOST = 16
"""Maximum matmuls per kernel, or rows of matmuls beside sums of the rows: each has separate sums in registers."""
FEW_READS = 16
"""Elements of the result per element of an operand, up to which any operation may be recomputed."""


def is_product(group: FusionGroup) -> bool:
    """The group has a matmul, or the multiplication of one."""
    return any(p.attrs.get("product") for p in group.members)


def may_join(first: FusionGroup, second: FusionGroup, value: IRNode) -> bool:
    """Whether a kernel with a matmul may hold both groups, the second of which reads `value` from the first."""
    members = (*first.members, *second.members)
    normed = any(p.attrs.get("normed") for p in members)
    for prim in members:
        if prim.kind == "scan" or (prim.kind == "reduce" and not prim.attrs.get("product")):
            if not normed or prim.op != "sum":
                return False
    readers = [p for p in second.members if p.attrs.get("product") and p.kind == "pw"]
    if is_product(first) or not readers or first.reduced:
        return True
    reads = max(math.prod(p.shape) // max(math.prod(value.shape), 1) for p in readers)
    return reads <= FEW_READS or _cost(value, first) <= CHEAP_OPS


def unpacks(group: FusionGroup, value: IRNode) -> bool:
    """`value` takes more bytes than all that it is computed from: packed weights are unpacked where they are multiplied."""
    read = {
        o.base
        for p in group.members
        for o in p.operands
        if isinstance(o, View) and o.base not in group.index
    }
    return sum(_bytes(p) for p in read) < _bytes(value)


def _bytes(value: IRNode) -> int:
    return math.prod(value.shape) * BYTES[value.dtype]


def reads_memory(second: FusionGroup, value: IRNode) -> bool:
    """`value` is an operand of an implicit matmul, which each place of its windows would compute again: it stays in memory."""
    reads = any(
        p.kind == "pw"
        and p.attrs.get("implicit")
        and any(isinstance(o, View) and o.base is value for o in p.operands)
        for p in second.members
    )
    return reads and not (value.op == "bounded" and value.attrs.get("implicit"))


def _cost(value: IRNode, group: FusionGroup) -> int:
    """Simple operations for an element of `value`; computed indices are computed once for many."""
    found: set[IRNode] = set()
    pending = [value]
    while pending:
        prim = pending.pop()
        if prim in group.index and prim not in found and prim.op != "gather":
            found.add(prim)
            pending += [o.base for o in prim.operands if isinstance(o, View)]
    return sum(PRIMITIVES[p.op].cost for p in found if p.kind == "pw")


def _walks_k(group: FusionGroup) -> bool:
    """Some computed index varies along k, so that each product would compute it."""
    return any(
        part.vars & group.reduced
        for prim in group.members
        if prim.op == "gather"
        for position in range(1, len(prim.operands))
        if isinstance(prim.operands[position], View)
        for part in group.reads(prim, position) or ()
    )


def is_sound(group: FusionGroup, escaping: list[IRNode]) -> bool:
    """Matmuls of the group have the same sides and types, and their epilogue runs once per element of the result.

    Args:
        escaping: members that are needed outside of the group.
    """
    scaled = [p for p in group.members if p.attrs.get("blocks") and p.kind == "pw"]
    if any(len(group.index[p][-1].terms) > 1 for p in scaled):
        return False  # a tile keeps to one block of k, which is one variable
    products = [p for p in group.members if p.kind == "reduce" and p.attrs.get("product")]
    if not products:  # the sum must be able to join whatever its multiplication has joined
        return not is_product(group) or all(p.attrs.get("product") for p in escaping)
    times = [p.operands[0].base for p in products]  # type: ignore[union-attr]
    if (
        len(products) > MOST
        or any(p not in group.index for p in times)
        or len({_kind(p) for p in times}) > 1
    ):
        return False
    if _walks_k(group):
        return False
    behind: set[IRNode] = set()
    for prim in group.members:
        if prim in products or any(isinstance(o, View) and o.base in behind for o in prim.operands):
            behind.add(prim)
    # With few columns the next matmul's multiplication is also once per element of the result, yet belongs to its own sum.
    if any(p in behind for p in group.members if p.kind == "pw" and p.attrs.get("product")):
        return False
    if any(prim not in behind or not group.is_row_level(prim) for prim in (*behind, *escaping)):
        return False
    first, *others = (_sides(group, p) for p in times)
    if not _beside(group, behind, first[0], len(products)):
        return False
    return all(sides in (first, first[::-1]) for sides in others)


def _beside(
    group: FusionGroup, behind: set[IRNode], rows: frozenset[Var], num_products: int
) -> bool:
    """Sums that are no product are over values of the few rows, and only what follows the product needs them."""
    after: set[IRNode] = set()
    for prim in group.members:
        is_sum = prim.kind == "reduce" and not prim.attrs.get("product")
        needs = any(isinstance(o, View) and o.base in after for o in prim.operands)
        if needs and (prim.kind == "reduce" or prim.attrs.get("product")):
            return False
        if is_sum:
            own = frozenset().union(*(part.vars for part in group.inner[prim]))
            if prim in behind or prim.op != "sum" or not own - group.reduced <= rows:
                return False
            if math.prod(v.size for v in rows) * num_products > MOST:
                return False
        if is_sum or needs:
            after.add(prim)
    return True


def _kind(times: IRNode) -> tuple[object, ...]:
    """Type and blocks of the multiplication: sums of one kernel have the same, which determine their tiles."""
    dtype = next(o.base.dtype for o in times.operands if isinstance(o, View))
    return dtype, times.attrs.get("narrow"), times.attrs.get("blocks")


def _sides(group: FusionGroup, times: IRNode) -> tuple[frozenset[Var], frozenset[Var]]:
    """The loop variables of each operand that the other lacks."""
    found = []
    for operand in times.operands[:2]:
        index = (
            broadcast_index(group.index[times], operand.shape) if isinstance(operand, View) else ()
        )
        found.append(frozenset(v for part in index for v in part.vars))
    left, right = found
    return left - right, right - left


def are_whole(part: Partition) -> bool:
    """Every multiplication is in the kernel of its sum: apart, all products would be written to memory."""
    groups = [set(group.members) for group in part.groups]
    return all(
        prim.operands[0].base in members  # type: ignore[union-attr]
        for members in groups
        for prim in members
        if _is_sum(prim)
    )


def repeated(graph: PrimGraph) -> set[str]:
    """Matmuls whose computed parts, plus the whole if it is computed too, have more elements than the whole."""
    wholes = {graph.origins[view.base]: view.base for view in graph.pieces if _is_sum(view.base)}
    made: Counter[str] = Counter()
    for prim in live(graph) if wholes else ():
        if _is_sum(prim):
            made[graph.origins[prim].split("[")[0]] += math.prod(prim.shape)
    return {name for name, whole in wholes.items() if made[name] > math.prod(whole.shape)}


def _is_sum(prim: IRNode) -> bool:
    return prim.kind == "reduce" and any(prim.attrs.get(mark) for mark in SUMMED)
