"""Gradients of the pieces of one tensor in a traced graph: a sum of paddings that fill it becomes a concatenation."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten


def join_pieces(graph: Graph) -> None:
    """Replace sums of zero-padded tensors, as the gradient of a split has them, by `cat` where they fill one dimension side by side."""
    for node in list(graph.nodes):
        if not _adds(node) or any(_adds(user) for user in node.users):
            continue
        terms = _terms(node)
        made = node.meta["val"]
        spans = [
            (span, term)
            for term in terms
            if (span := _span(term)) is not None
            and (term.meta["val"].shape, term.meta["val"].dtype) == (made.shape, made.dtype)
        ]
        if len(terms) < 2 or len(spans) < len(terms):
            continue
        ordered = sorted(spans, key=lambda one: one[0])
        dim = ordered[0][0][0]
        ends = [(dim, 0), *((span[0], span[2]) for span, _ in ordered)]
        starts = [*((span[0], span[1]) for span, _ in ordered), (dim, made.shape[dim])]
        if starts != ends:
            continue
        with graph.inserting_before(node):
            parts = [term.args[0] for _, term in ordered]
            joined = graph.call_function(aten.cat.default, (parts, dim))
        joined.meta = dict(node.meta)
        node.replace_all_uses_with(joined)
    graph.eliminate_dead_code()


def _adds(node: Node) -> bool:
    return node.target is aten.add.Tensor and not node.kwargs


def _terms(node: Node) -> list[Node]:
    """The terms of a sum, those of sums that nothing else reads taken apart."""
    found: list[Node] = []
    for term in node.args:
        if not isinstance(term, Node):
            return []
        inner = _adds(term) and len(term.users) == 1
        found += _terms(term) if inner else [term]
    return found


def _span(node: Node) -> tuple[int, int, int] | None:
    """The dimension that a node pads with zeros, and the first and last place of what it pads; None for another node."""
    if node.target is not aten.constant_pad_nd.default or len(node.users) > 1:
        return None
    given, padding, *value = node.args
    shape = given.meta["val"].shape  # type: ignore[union-attr]
    pairs = list(zip(padding[::2], padding[1::2], strict=True))  # type: ignore[index,arg-type]
    padded = [n for n, pair in enumerate(pairs) if any(pair)]
    if len(padded) != 1 or any(value) or min(pairs[padded[0]]) < 0:
        return None
    dim = len(shape) - 1 - padded[0]
    ahead = pairs[padded[0]][0]
    return dim, ahead, ahead + shape[dim]
