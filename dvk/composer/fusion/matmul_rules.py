"""What may share a kernel with a matrix product: the fuser's rules for it.

Behind a product fuses what is computed once an element of its result. Before it, into the load of an operand, only what is cheap:
it is computed again for every tile of the other operand. Two products share a kernel where one operand's index space is the other's,
so that both are sums over the same tiles.
"""

from __future__ import annotations

import math
from collections import Counter

from dvk.composer.fusion.groups import FusionGroup, Partition, live
from dvk.composer.ir.affine import Var
from dvk.composer.ir.nodes import COSTLY, IRNode, View, broadcast_index
from dvk.composer.lowering.dispatch import PrimGraph
from dvk.composer.lowering.pooling import COSTLY_OPS
from dvk.composer.lowering.view_pushdown import SUMMED

CHEAP_OPS = 3
"""Operations that may be done again for every tile of the other operand: a scale, an activation of one or two steps, a mask."""
MOST = 16
"""Products of one kernel: each has its own sums in registers."""
FEW_READS = 16
"""Elements of the result that read one element of an operand, up to which anything may be computed again."""


def is_product(group: FusionGroup) -> bool:
    """The group has a matrix product, or the multiplication of one."""
    return any(p.attrs.get("product") for p in group.members)


def may_join(first: FusionGroup, second: FusionGroup, value: IRNode) -> bool:
    """Whether a kernel with a product may hold both groups, of which the second reads `value` from the first."""
    members = (*first.members, *second.members)
    if any(p.kind == "scan" or (p.kind == "reduce" and not p.attrs.get("product")) for p in members):
        return False
    readers = [p for p in second.members if p.attrs.get("product") and p.kind == "pw"]
    if is_product(first) or not readers:
        return True
    reads = max(math.prod(p.shape) // max(math.prod(value.shape), 1) for p in readers)
    return reads <= FEW_READS or _cost(first) <= CHEAP_OPS


def _cost(group: FusionGroup) -> int:
    return sum(COSTLY_OPS if p.op in COSTLY else p.op not in ("as", "iota", "bounded", "cast") for p in group.members if p.kind == "pw")


def is_sound(group: FusionGroup, escaping: list[IRNode]) -> bool:
    """Products of the group have the same sides and types, and what is behind them is computed once an element of the result.

    Args:
        escaping: members that are needed outside of the group.
    """
    products = [p for p in group.members if p.kind == "reduce" and p.attrs.get("product")]
    if not products:  # what a multiplication has joined its sum must be able to join
        return not is_product(group) or all(p.attrs.get("product") for p in escaping)
    times = [p.operands[0].base for p in products]  # type: ignore[union-attr]
    if len(products) > MOST or any(p not in group.index for p in times) or len({_dtype(p) for p in times}) > 1:
        return False
    behind: set[IRNode] = set()
    for prim in group.members:
        if prim in products or any(isinstance(o, View) and o.base in behind for o in prim.operands):
            behind.add(prim)
    # With few columns the next product's multiplication, too, is once an element of the result, and yet belongs to its own sum.
    if any(p in behind for p in group.members if p.kind == "pw" and p.attrs.get("product")):
        return False
    if any(prim not in behind or not group.is_row_level(prim) for prim in (*behind, *escaping)):
        return False
    first, *others = (_sides(group, p) for p in times)
    return all(sides in (first, first[::-1]) for sides in others)


def _dtype(times: IRNode) -> str:
    """Of what is multiplied: sums of one kernel are of one type, and tiles are chosen for it."""
    return next(o.base.dtype for o in times.operands if isinstance(o, View))


def _sides(group: FusionGroup, times: IRNode) -> tuple[frozenset[Var], frozenset[Var]]:
    """The loop variables of each operand that the other lacks."""
    found = []
    for operand in times.operands:
        index = broadcast_index(group.index[times], operand.shape) if isinstance(operand, View) else ()
        found.append(frozenset(v for part in index for v in part.vars))
    left, right = found
    return left - right, right - left


def are_whole(part: Partition) -> bool:
    """Every product is in the kernel of its sum: apart, all that is multiplied would be written to memory."""
    found = [set(group.members) for group in part.groups]
    return all(prim.operands[0].base in members for members in found for prim in members if _is_sum(prim))  # type: ignore[union-attr]


def repeated(graph: PrimGraph) -> set[str]:
    """Products of which the parts that are computed, and the whole where it is, are together more than the whole."""
    wholes = {graph.origins[view.base]: view.base for view in graph.pieces if _is_sum(view.base)}
    made: Counter[str] = Counter()
    for prim in live(graph) if wholes else ():
        if _is_sum(prim):
            made[graph.origins[prim].split("[")[0]] += math.prod(prim.shape)
    return {name for name, whole in wholes.items() if made[name] > math.prod(whole.shape)}


def _is_sum(prim: IRNode) -> bool:
    return prim.kind == "reduce" and any(prim.attrs.get(mark) for mark in SUMMED)
