"""Run convolutions in channels-last memory and keep what follows them in that layout.

Only memory layout changes, so it is exact; measurement decides whether it pays. Weights are re-laid once and again whenever they are
written. Returned values keep PyTorch's layout. On a GPU 1-D convolutions are run as images of one row (`row_images`).
"""

from __future__ import annotations

import math
from typing import Any

from dvk import aten
from dvk.composer.ir.effects import is_view, pinned
from dvk.composer.lowering.dispatch import RULES
from dvk.composer.rewrites import row_images
from dvk.composer.rewrites.edit import (
    is_output,
    outputs_as_before,
    packet,
    reads,
    rebuilt,
    ref,
    sees_layout,
    users,
)
from dvk.composer.rewrites.row_images import ROW
from dvk.records import Graph, Node

CONVOLUTIONS = frozenset(name for name, dims in aten.CONVOLUTIONS.items() if dims > 1)
FOLLOWING = frozenset(
    {
        "adaptive_avg_pool2d",
        "avg_pool2d",
        "avg_pool3d",
        "batch_norm",
        "cat",
        "constant_pad_nd",
        "max_pool2d",
        "max_pool3d",
        "pad",
        "upsample_bilinear2d",
        "upsample_nearest2d",
    }
)
"""Operators besides elementwise ones whose result has the layout of their operands, in PyTorch and in our kernels."""
FORMATS = {4: "channels_last", 5: "channels_last_3d"}
"""Dimensions → PyTorch's memory format."""


def rewrite(graph: Graph, device: str = "cuda") -> Graph | None:
    """The re-laid graph, or None without a convolution to re-lay."""
    original = graph
    if device == "cuda" and not sees_layout(graph):
        graph = row_images.rewrite(graph) or graph
    readers = users(graph)
    kept = pinned(graph)
    if sees_layout(graph):
        return None
    laid: dict[str, tuple[int, ...]] = {}
    nodes = {n.name: n for n in graph.nodes}
    replacement: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.name in kept or node.shape is None or not channels_last(node.shape):
            continue
        if packet(node) in CONVOLUTIONS and len(node.shape) in FORMATS:
            laid[node.name] = channels_last(node.shape)
            replacement[node.name] = _convolution(node, nodes, laid)
        elif _follows(node, laid, nodes) and not is_output(readers[node.name]):
            laid[node.name] = channels_last(node.shape)
            replacement[node.name] = [node.model_copy(update={"strides": laid[node.name]})]
    return (
        outputs_as_before(rebuilt(graph, replacement, {}), original, set(laid))
        if replacement
        else None
    )


def _convolution(
    node: Node, nodes: dict[str, Node], laid: dict[str, tuple[int, ...]]
) -> list[Node]:
    """The convolution in channels-last memory, after its operands where they are laid out otherwise."""
    before, weight = nodes[ref(node.args[0]) or ""], nodes[ref(node.args[1]) or ""]
    made: list[Node] = []
    args = list(node.args)
    if before.name not in laid and before.strides != channels_last(before.shape or ()):
        kwargs = {"memory_format": {"memory_format": FORMATS[len(node.shape or ())]}}
        made.append(_moved(before, f"{node.name}_x", "aten.contiguous.default", kwargs))
        args[0] = {"ref": made[-1].name}
    strided = channels_last(weight.shape or ())
    if weight.op in ("param", "buffer", "derived") and weight.strides != strided:
        make = f"lambda w: w.contiguous(memory_format=torch.{FORMATS[len(node.shape or ())]})"
        made.append(_moved(weight, f"{node.name}_l", "derived", {"make": make}))
        args[1] = {"ref": made[-1].name}
    update = {"args": tuple(args), "strides": laid[node.name]}
    return [*made, node.model_copy(update=update)]


def _moved(node: Node, name: str, op: str, kwargs: dict[str, Any]) -> Node:
    return node.model_copy(
        update={
            "name": name,
            "op": op,
            "args": ({"ref": node.name},),
            "target": None,
            "kwargs": kwargs,
            "strides": channels_last(node.shape or ()),
        }
    )


def _follows(node: Node, laid: dict[str, tuple[int, ...]], nodes: dict[str, Node]) -> bool:
    name, read = packet(node), reads(node)
    if name in FOLLOWING or (name in ("squeeze", "unsqueeze") and node.args[1:] == (ROW,)):
        return bool(read) and read[0] in laid
    if name not in RULES or is_view(node):
        return False
    return any(source in laid and nodes[source].shape == node.shape for source in read)


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor [N, C, ...] whose channels are adjacent; none for other ranks."""
    if not 3 <= len(shape) <= 5:
        return ()
    inner = shape[2:]
    spatial = [shape[1] * math.prod(inner[d + 1 :]) for d in range(len(inner))]
    return (shape[1] * math.prod(inner), 1, *spatial)
