"""What a backward reads of its forward: the tensors behind the saved views, so that the forward makes no view only to save it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten
VIEWS = {
    aten._unsafe_view.default,
    aten.alias.default,
    aten.detach.default,
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.t.default,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.view.default,
}
"""Operators whose result has the memory of their first argument, and whose other arguments are numbers."""
SPLITS = {aten.split.Tensor, aten.split_with_sizes.default}


def save_bases(forward: Any, backward: Any, num_results: int) -> None:
    """Save the base of each saved view, once for all of its views; the backward makes the views that it needs.

    Args:
        forward: a graph module with the forward's results first among its outputs, and the saved tensors after them.
        backward: a graph module that takes the saved tensors and then the tangents.
        num_results: number of outputs that are not saved tensors.
    """
    (output,) = [node for node in forward.graph.nodes if node.op == "output"]
    outputs = list(output.args[0])
    places = [node for node in backward.graph.nodes if node.op == "placeholder"]
    kept: dict[Node, Node] = {}
    for base, place in zip(outputs[num_results:], places, strict=False):
        chain = []
        while (link := _link(base)) is not None:
            chain.append((*link[1:], base.meta["val"]))
            base = link[0]
        if base not in kept:
            with backward.graph.inserting_before(place):
                # A tangent is known by its name, which no saved tensor may have.
                kept[base] = backward.graph.placeholder(f"saved_{base.name}")
            kept[base].meta["val"] = base.meta["val"]
        made = kept[base]
        with backward.graph.inserting_before(places[-1].next):
            for target, args, value in reversed(chain):
                made = backward.graph.call_function(target, (made, *args))
                made.meta["val"] = value
        place.replace_all_uses_with(made)
        backward.graph.erase_node(place)
    output.args = ((*outputs[:num_results], *kept),)
    forward.graph.eliminate_dead_code()


def _link(node: Any) -> tuple[Node, Any, tuple[Any, ...]] | None:
    """What a node is a view of, and the operator with its further arguments; None if it is no view. A piece of a split is a slice."""
    if node.target in VIEWS:
        return node.args[0], node.target, node.args[1:]
    if node.target is not operator.getitem:
        return None
    split, number = node.args
    if split.target not in SPLITS:
        return None
    base, _, *rest = split.args
    dim = rest[0] if rest else 0
    sizes = [piece.shape[dim] for piece in split.meta["val"]]
    start = sum(sizes[:number])
    return base, aten.slice.Tensor, (dim, start, start + sizes[number])
