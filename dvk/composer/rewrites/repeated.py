"""Compute repeated operators once: those of the same kind on the same operands.

Exact for every input, bit for bit. Random numbers, uninitialised memory and all operators on memory that is written in place are left, and
at most one of equal results is returned: two returned tensors must not become one. Measurement decides whether it pays: two kernels that
each recompute a value may take less time than one that stores it for the other.
"""

from __future__ import annotations

from dvk.composer.ir.effects import draws, pinned, refs
from dvk.composer.rewrites.edit import packet, rebuilt, rename, returned_memory
from dvk.records import Graph, Node


def rewrite(graph: Graph) -> Graph | None:
    """The graph without repetitions, or None if there are none."""
    kept, handed_out = pinned(graph) | _shifts(graph), returned_memory(graph)
    first: dict[str, Node] = {}
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        if node.name in kept or not _is_pure(node):
            continue
        key = repr(
            (
                node.op,
                rename(list(node.args), renamed),
                rename(node.kwargs, renamed),
                node.shape,
                node.dtype,
                node.strides,
            )
        )
        known = first.setdefault(key, node)
        if known is node or {known.name, node.name} <= handed_out:
            continue
        if node.name in handed_out:
            handed_out.add(known.name)
        renamed[node.name] = known.name
    return rebuilt(graph, {name: [] for name in renamed}, renamed) if renamed else None


SHIFTS = ("__rshift__", "__lshift__", "bitwise_right_shift", "bitwise_left_shift")


def _shifts(graph: Graph) -> set[str]:
    """What words are shifted by: in the kernel of each reader it is a number, in memory it is none."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        operands = list(node.args)
        if packet(node) in SHIFTS:
            found |= set(refs(operands[1:]))
        elif node.name in found and len(operands) and len(set(refs(operands))) == 1:
            found |= set(refs(operands))
    return found


def _is_pure(node: Node) -> bool:
    """Equal operands give equal results."""
    return (
        (bool(packet(node)) or node.op == "getitem")
        and not draws(node)
        and "empty" not in packet(node)
    )
