"""Operators over lists of tensors, of which optimizers are made, as one operator for each tensor.

PyTorch's `_foreach` operators read and write all tensors once for each operator of a step. Apart, everything that happens to one tensor
becomes one kernel. Operators in place stay, and what they write: neither would become a kernel.

Which operator computes an element follows from the declarations: that of the same name whose operands are the elements of the lists.
"""

from __future__ import annotations

from functools import cache

from dvk.composer.ir.effects import Schema, overloads, packet_of, pinned, schema
from dvk.composer.rewrites.edit import rebuilt, ref
from dvk.records import Graph, Node

PREFIX = "_foreach_"
MOST = 32
"""Tensors of a list, beyond which as many launches would take longer than PyTorch's few over all of them."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with such operators taken apart, or None without one."""
    nodes = {node.name: node for node in graph.nodes}
    results: dict[str, dict[int, list[Node]]] = {}
    for node in graph.nodes:
        if node.op == "getitem" and packet_of(nodes[ref(node.args[0]) or ""].op).startswith(PREFIX):
            results.setdefault(ref(node.args[0]) or "", {}).setdefault(node.args[1], []).append(
                node
            )
    replacement: dict[str, list[Node]] = {}
    kept = pinned(graph)
    for node in graph.nodes:
        read = {n.name for each in results.get(node.name, {}).values() for n in each}
        if node.name in kept or read & kept:
            continue
        parts = _apart(node, results.get(node.name, {}))
        if parts is not None:
            replacement[node.name] = parts
            replacement |= {name: [] for name in read}
    return rebuilt(graph, replacement, {}) if replacement else None


def _apart(node: Node, results: dict[int, list[Node]]) -> list[Node] | None:
    """The operators of each element; None for a node that stays.

    Args:
        results: the nodes that read each element of its result.
    """
    found = _element(node.op)
    if found is None:
        return None
    op, whole, one = found
    given = {argument.name: value for argument, value in whole.operands(node)}
    values = [given[a.name] for a in whole.arguments if a.name in given]
    lists = [len(v) for v in values if isinstance(v, list)]
    if not lists or len(set(lists)) > 1 or lists[0] > MOST:
        return None
    names = [a for a, b in zip(one.arguments, whole.arguments, strict=False) if b.name in given]
    made: list[Node] = []
    for place, readers in sorted(results.items()):
        each = [value[place] if isinstance(value, list) else value for value in values]
        operands = list(zip(names, each, strict=True))
        call = {
            "op": op,
            "args": tuple(value for name, value in operands if not name.by_name),
            "kwargs": {name.name: value for name, value in operands if name.by_name},
        }
        made.append(readers[0].model_copy(update=call))
        for again in readers[1:]:
            same = {"op": "aten.alias.default", "args": ({"ref": readers[0].name},)}
            made.append(again.model_copy(update=same))
    return made


@cache
def _element(op: str) -> tuple[str, Schema, Schema] | None:
    """The operator on elements, and both declarations; None if there is none."""
    packet, whole = packet_of(op), schema(op)
    if not packet.startswith(PREFIX) or whole is None or not whole.results:
        return (
            None  # in place it stays one call: what writes a given tensor would not become a kernel
        )
    kinds = [argument.kind.removesuffix("[]") for argument in whole.arguments]
    for name in overloads(packet.removeprefix(PREFIX)):
        one = schema(name)
        if one is None or any(argument.kind.endswith("[]") for argument in one.arguments):
            continue
        taken = [argument.kind for argument in one.arguments]
        spare = one.arguments[len(kinds) :]
        if taken[: len(kinds)] == kinds and all(a.default is not None for a in spare):
            return name, whole, one
    return None
