"""Values that are cheaper to compute again than to write and read: elementwise work before a sum whose result scales them later.

`y = f(x); y * gate(y.mean())` is two kernels. The first needs y for the mean, the second for the product. Written by the first, y costs one
pass over memory more than f computed twice from x, which both kernels then read: the graph gets f a second time, for the readers outside.
"""

from __future__ import annotations

import math

from dvk.composer.fusion.groups import FusionGroup, Partition, output_bases
from dvk.composer.fusion.matmul_rules import is_product
from dvk.composer.ir.effects import refs, rename, touched
from dvk.composer.ir.nodes import BYTES, IRNode, View
from dvk.composer.ir.primitives import PRIMITIVES
from dvk.composer.lowering.whole_graph import PrimGraph
from dvk.records import Graph, Node

MOST = 64
"""Cost of what is computed again, in simple operations: beyond, arithmetic takes longer than memory."""
STAYING = ("gather", "bounded", "iota")
"""Operations that are not computed again."""


def recomputed(graph: Graph, prims: PrimGraph, part: Partition) -> Graph | None:
    """The graph with a second computation for readers in other kernels, or None where nothing is gained."""
    outputs, changed = output_bases(prims), touched(graph.nodes)
    again: dict[str, set[str]] = {}
    """Value → the operators that read it elsewhere."""
    chains: set[str] = set()
    for group in part.groups:
        if not any(p.kind == "reduce" for p in group.members) or is_product(group):
            continue
        for prim in group.members:
            name = prims.origins.get(prim, "")
            if prim not in part.escapes or prim in outputs or group.is_row_level(prim):
                continue
            if prims.values.get(name) != View(prim):
                continue
            chain, readers = _chain(prim, group), _readers(prim, group, part)
            if not _is_saved(prim, chain) or not readers:
                continue
            read = {prims.origins.get(p, "") for p in _read(chain)}
            inside = {prims.origins[p] for p in group.members if p not in chain}
            outside = {prims.origins[user].split("[")[0] for user in readers}
            if not read & changed and not inside & outside:
                again[name] = outside
                chains |= {prims.origins[p] for p in chain}
    return _doubled(graph, prims, again, chains) if again else None


def _readers(prim: IRNode, group: FusionGroup, part: Partition) -> list[IRNode]:
    """Operations of other kernels that read the value element by element; none if others read it, too."""
    readers = [user for user in part.users[prim] if user not in group.index]
    whole = any(user.kind not in ("pw", "reduce") or user.op in STAYING for user in readers)
    return [] if whole else readers


def _chain(prim: IRNode, group: FusionGroup) -> set[IRNode]:
    """What computes a value from memory; empty if a sum is part of it, or if it costs too much."""
    chain: set[IRNode] = set()
    pending = [prim]
    while pending:
        one = pending.pop()
        if one in chain or one not in group.index:
            continue
        if one.kind != "pw" or one.op in STAYING or one.attrs.get("own"):
            return set()
        chain.add(one)
        pending += [o.base for o in one.operands if isinstance(o, View)]
    cost = sum(max(PRIMITIVES[p.op].gpu_cost, 1) for p in chain)
    return chain if cost <= MOST else set()


def _is_saved(prim: IRNode, chain: set[IRNode]) -> bool:
    """Reading the chain's operands once more takes less than to write the value and to read it."""
    return 0 < sum(map(_bytes, _read(chain))) < 2 * _bytes(prim)


def _read(chain: set[IRNode]) -> set[IRNode]:
    """What the chain reads from memory."""
    operands = {o.base for p in chain for o in p.operands if isinstance(o, View)}
    return operands - chain


def _bytes(prim: IRNode) -> int:
    return math.prod(prim.shape) * BYTES[prim.dtype]


def _doubled(
    graph: Graph, prims: PrimGraph, again: dict[str, set[str]], chains: set[str]
) -> Graph | None:
    """The graph with the operators of the chains a second time, for some readers."""
    bases = {prims.values[name].base for name in again}
    # Views of the values, and what computes them: a reader may see both.
    views = {
        name
        for name, value in prims.values.items()
        if isinstance(value, View) and value.base in bases and name not in again
    }
    renamed = {name: f"{name}_again" for name in chains | views}
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.append(node)
        if node.name in renamed:
            update = {"args": tuple(rename(list(node.args), renamed)), "name": renamed[node.name]}
            nodes.append(node.model_copy(update={**update, "kwargs": rename(node.kwargs, renamed)}))
        elif any(node.name in readers for readers in again.values()):
            nodes[-1] = node.model_copy(
                update={
                    "args": tuple(rename(list(node.args), renamed)),
                    "kwargs": rename(node.kwargs, renamed),
                }
            )
    known = {node.name for node in nodes}
    if any(name not in known for node in nodes for name in refs([list(node.args), node.kwargs])):
        return None
    return graph.model_copy(update={"nodes": tuple(nodes)})
