"""Remove operators without effect: inactive dropout, ×1, +0, clamps to a range that holds anyway, casts to the same type or there and back.

Exact for every input including NaN and infinities, up to the sign of zero. A result that is returned, viewed by a returned value, or
written in place is left: it must not become an alias of its operand. Clamps with an effect stay: two of them are one kernel anyway.
"""

from __future__ import annotations

import math

from dvk import aten
from dvk.composer.ir.effects import pinned
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.rewrites.edit import drops_nothing, packet, rebuilt, ref, returned_memory
from dvk.records import Graph, Node

CASTS = ("to", "_to_copy", "float", "type_as")
HOLDS = {
    "bool": (
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
    ),
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
    "uint8": ("int16", "int32", "int64", "float32", "float64"),
    "int8": ("int16", "int32", "int64", "float32", "float64"),
    "int16": ("int32", "int64", "float32", "float64"),
    "int32": ("int64", "float64"),
}
"""Type → types that hold each of its values."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph without them, or None if it has none."""
    touched = pinned(graph)
    kept = returned_memory(graph) | touched
    nodes = {n.name: n for n in graph.nodes}
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        source = ref(node.args[0]) if node.args else None
        if source is None or node.name in kept:
            continue
        source = renamed.get(source, source)
        before = nodes[source]
        if packet(node) in CASTS and packet(before) in CASTS and before.name not in touched:
            narrow = nodes[renamed.get(name := ref(before.args[0]) or "", name)]
            if (narrow.shape, narrow.dtype, narrow.strides) == (
                node.shape,
                node.dtype,
                node.strides,
            ) and before.dtype in HOLDS.get(str(narrow.dtype), ()):
                renamed[node.name] = narrow.name
                continue
        if (before.shape, before.dtype) == (node.shape, node.dtype) and _changes_nothing(
            node, before
        ):
            renamed[node.name] = source
    if not renamed:
        return None
    return rebuilt(graph, {name: [] for name in renamed}, renamed)


def _changes_nothing(node: Node, before: Node) -> bool:
    name, rest = packet(node), list(node.args[1:])
    if name in aten.of("dropout"):
        return drops_nothing(node)
    if name in ("mul", "div", "pow"):
        return (
            len(rest) == 1
            and isinstance(rest[0], (int, float))
            and rest[0] == 1
            and not node.kwargs
        )
    if name in ("add", "sub"):
        return len(rest) == 1 and isinstance(rest[0], (int, float)) and rest[0] == 0
    if name in CASTS:
        return before.strides == node.strides
    if name in aten.having("idempotent") and packet(before) == name:
        return before.kwargs == node.kwargs  # to so many decimals
    (low, high), within = _range(before), (0.0, math.inf) if name == "abs" else _clamp(node)
    return within is not None and within[0] <= low and high <= within[1]


def _range(node: Node) -> tuple[float, float]:
    """The bounds of a node's values, except NaN."""
    clamp = _clamp(node)
    if clamp is not None:
        return min(clamp), clamp[1]  # if they are reversed every value is the upper one
    row = aten.OPERATORS.get(packet(node))
    return row.bounds if row is not None and node.dtype in FLOATS else (-math.inf, math.inf)


def _clamp(node: Node) -> tuple[float, float] | None:
    """The bounds that a node imposes on its values; None if it imposes none, or if they are tensors."""
    name, rest = packet(node), list(node.args[1:])
    if name in ("relu", "relu6"):
        return 0.0, 6.0 if name == "relu6" else math.inf
    if name not in ("clamp", "clip", "clamp_min", "clamp_max", "hardtanh"):
        return None
    ends = [None, *rest] if name == "clamp_max" else [*rest, None, None]
    low, high = (
        node.kwargs.get(f"{end}_val", node.kwargs.get(end, value))
        for end, value in zip(("min", "max"), (*ends, None))
    )
    if name == "hardtanh":
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    if any(end is not None and type(end) not in (int, float) for end in (low, high)):
        return None
    if node.dtype == "uint8" and any(end is not None and end < 0 for end in (low, high)):
        return None  # they wrap around
    return -math.inf if low is None else low, math.inf if high is None else high
