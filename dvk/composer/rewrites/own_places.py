"""Give each condition of an attention's mask its own places.

A mask by places (`arange(n)[:, None] >= arange(n)`) reads one range along queries and along keys. A kernel computes a value at one index,
so that a shared range would be stored by a separate kernel and read for each score. Counted again by each reader, ranges cost nothing,
and the kernel of the attention knows which keys a query sees (`codegen.analysis.seen_keys`).
"""

from __future__ import annotations

from dvk import aten
from dvk.composer.ir.effects import pinned, rename
from dvk.composer.rewrites.edit import packet, reads, users
from dvk.records import Graph, Node

RANGES = ("arange",)
INTEGERS = ("int64", "int32", "bool")
SOFTMAX = ("softmax", "_softmax", "scaled_dot_product_attention")
ENDS = frozenset({"matmul", "bmm", "mm", "einsum", "baddbmm", "linear", "addmm"})
"""Operators before which nothing belongs to the scores."""


def rewrite(graph: Graph) -> Graph:
    """The graph with a copy of what counts places for each reader on the way to a softmax; itself if none is shared."""
    counted, scored = _counted(graph), _scored(graph)
    readers = users(graph)
    copies: dict[str, list[Node]] = {}
    """Value → its copies, in the order of the readers that take them."""
    reading: dict[str, dict[str, str]] = {}
    """Reader → what it reads instead."""
    for node in reversed(graph.nodes):
        if node.name not in counted:
            continue
        # A reader that was copied is several; each copy reads a copy, the reader itself what it read.
        wanting = [
            name
            for reader in readers[node.name]
            for name in (reader.name, *(c.name for c in copies.get(reader.name, ())))
            if reader.name in scored
        ]
        kept = any(reader.name not in scored for reader in readers[node.name])
        wanting = list(dict.fromkeys(wanting))
        for number, name in enumerate(wanting if kept else wanting[1:]):
            copy = node.model_copy(update={"name": f"{node.name}_at{number}"})
            copies.setdefault(node.name, []).append(copy)
            reading.setdefault(name, {})[node.name] = copy.name
    if not copies:
        return graph
    nodes = [one for node in graph.nodes for one in (node, *copies.get(node.name, ()))]
    return graph.model_copy(
        update={"nodes": tuple(_reading(n, reading.get(n.name, {})) for n in nodes)}
    )


def _reading(node: Node, renamed: dict[str, str]) -> Node:
    if not renamed:
        return node
    args, kwargs = rename(list(node.args), renamed), rename(node.kwargs, renamed)
    return node.model_copy(update={"args": tuple(args), "kwargs": kwargs})


def _counted(graph: Graph) -> set[str]:
    """Integers and conditions that come from ranges and numbers alone."""
    kept = pinned(graph)
    found: set[str] = set()
    for node in graph.nodes:
        name = packet(node)
        row = aten.OPERATORS.get(name)
        plain = row is not None and row.category in (*aten.POINTWISE, "view", "reshape", "cast")
        if node.name in kept or node.dtype not in INTEGERS:
            continue
        if name in RANGES or (plain and reads(node) and set(reads(node)) <= found):
            found.add(node.name)
    return found


def _scored(graph: Graph) -> set[str]:
    """What leads from ranges to a softmax, products aside."""
    producers = {node.name: node for node in graph.nodes}
    pending = [name for n in graph.nodes if packet(n) in SOFTMAX for name in reads(n)]
    found: set[str] = {n.name for n in graph.nodes if packet(n) in SOFTMAX}
    while pending:
        node = producers[pending.pop()]
        if node.name in found or packet(node) in ENDS:
            continue
        found.add(node.name)
        pending += reads(node)
    return found
