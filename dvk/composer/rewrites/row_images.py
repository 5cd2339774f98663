"""1-D convolutions as 2-D ones of images of one row: the same sums, in a form that has a channels-last layout.

PyTorch has no such layout in one dimension, so its library changes the layout of both operands and of the result in every call.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.effects import pinned
from dvk.composer.lowering.pooling import per_dim
from dvk.composer.rewrites.edit import packet, rebuilt, ref
from dvk.records import Graph, Node

IMAGES = {"conv1d": "conv2d.default", "conv_transpose1d": "conv_transpose2d.input"}
SIZES = {
    "conv1d": {"stride": 1, "padding": 0, "dilation": 1, "groups": 1},
    "conv_transpose1d": {"stride": 1, "padding": 0, "more": 0, "groups": 1, "dilation": 1},
}
"""Operands behind the bias, in their order, with their defaults: those of the other dimension, which has one place."""
ROW = 2
"""The dimension of one row."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with images for rows, or None without a 1-D convolution of a batch."""
    nodes, kept = {n.name: n for n in graph.nodes}, pinned(graph)
    replacement = {
        node.name: images
        for node in graph.nodes
        if packet(node) in IMAGES and node.name not in kept and (images := _images(node, nodes))
    }
    return rebuilt(graph, replacement, {}) if replacement else None


def _images(node: Node, nodes: dict[str, Node]) -> list[Node]:
    """The nodes in place of one convolution; none if its padding is a word, or it has no batch."""
    x, weight = (nodes[ref(value) or ""] for value in node.args[:2])
    usual = SIZES[packet(node)]
    given = dict(usual) | dict(zip(usual, node.args[3:], strict=False))
    sizes = {name: per_dim(value, 1, []) for name, value in given.items() if name != "groups"}
    if node.kwargs or any(len(n.shape or ()) != 3 for n in (node, x, weight)):
        return []
    if not all(sizes.values()):
        return []
    args = [
        given[name] if name == "groups" else [usual[name], *(sizes[name] or ())] for name in usual
    ]
    image = _row(x, f"{node.name}_i", "aten.unsqueeze.default", {"ref": x.name}, ROW)
    window = _row(weight, f"{node.name}_k", "aten.unsqueeze.default", {"ref": weight.name}, ROW)
    if weight.op in ("param", "buffer", "derived"):
        derived = {"op": "derived", "args": ({"ref": weight.name},), "target": None}
        make = {"make": f"lambda w: w.unsqueeze({ROW})"}
        window = window.model_copy(update={**derived, "kwargs": make})
    bias = node.args[2] if len(node.args) > 2 else None
    operands = {"ref": image.name}, {"ref": window.name}, bias, *args
    whole = _row(node, f"{node.name}_r", f"aten.{IMAGES[packet(node)]}", *operands)
    back = {"op": "aten.squeeze.dim", "args": ({"ref": whole.name}, ROW)}
    return [image, window, whole, node.model_copy(update=back)]


def _row(node: Node, name: str, op: str, *args: Any) -> Node:
    """A node of the shape of another with a dimension of one row."""
    (batch, channels, length), strides = node.shape or (0, 0, 0), node.strides
    if strides is not None:
        strides = (*strides[:2], length * strides[2], strides[2])
    update: dict[str, Any] = {"name": name, "op": op, "args": args, "kwargs": {}, "target": None}
    return node.model_copy(
        update={**update, "shape": (batch, channels, 1, length), "strides": strides}
    )
