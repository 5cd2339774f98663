"""Remove operators that change nothing: inactive dropout, ×1, +0, repeated relu, casts to the same type.

Exact for every input including NaN and infinities, up to the sign of zero. A result whose memory the
caller gets, or that something writes in place, is left alone: it must not become an alias of its operand.
"""

from __future__ import annotations

from dvk.composer.lowering import pinned
from dvk.composer.recipes.edit import packet, rebuilt, ref, returned_memory
from dvk.records import Graph, Node

IDEMPOTENT = {"relu", "abs", "relu6", "floor", "ceil", "trunc", "round", "sign"}
NOT_NEGATIVE = {"relu", "relu6", "abs", "sigmoid", "exp", "softmax", "square", "sqrt"}


def rewrite(graph: Graph) -> Graph | None:
    """The graph without them, or None when there is none."""
    kept = returned_memory(graph) | pinned(graph)
    nodes = {n.name: n for n in graph.nodes}
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        source = ref(node.args[0]) if node.args else None
        if source is None or node.name in kept:
            continue
        source = renamed.get(source, source)
        before = nodes[source]
        if (before.shape, before.dtype) == (node.shape, node.dtype) and _changes_nothing(node, before):
            renamed[node.name] = source
    if not renamed:
        return None
    return rebuilt(graph, {name: [] for name in renamed}, renamed)


def _changes_nothing(node: Node, before: Node) -> bool:
    name, rest = packet(node), list(node.args[1:])
    if name in ("dropout", "alpha_dropout", "feature_dropout"):
        return not rest[1] or rest[0] == 0
    if name in ("mul", "div", "pow"):
        return len(rest) == 1 and isinstance(rest[0], (int, float)) and rest[0] == 1 and not node.kwargs
    if name in ("add", "sub"):
        return len(rest) == 1 and isinstance(rest[0], (int, float)) and rest[0] == 0
    if name in ("to", "_to_copy", "float", "type_as"):
        return before.strides == node.strides
    if name in IDEMPOTENT and packet(before) == name:
        return True
    return name in ("relu", "abs") and packet(before) in NOT_NEGATIVE
