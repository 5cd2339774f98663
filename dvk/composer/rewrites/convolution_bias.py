"""Add a library convolution's bias in the kernel that follows.

cuDNN's convolutions leave the bias to a kernel of PyTorch, which reads and writes the whole result: the sum is the same
wherever it is done, and next to what reads it, it costs nothing.
"""

from __future__ import annotations

from dvk import aten
from dvk.composer.ir.effects import pinned
from dvk.composer.rewrites.edit import packet, rebuilt, ref
from dvk.records import Graph, Node


def rewrite(graph: Graph) -> Graph | None:
    """The graph with the sums apart, or None without such a convolution."""
    kept = pinned(graph)
    nodes = {node.name: node for node in graph.nodes}
    replacement: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if (
            packet(node) not in aten.CONVOLUTIONS
            or len(node.args) < 3
            or node.args[2] is None
            or node.shape is None
            or node.name in kept
        ):
            continue
        bias = nodes[ref(node.args[2]) or ""]
        rank = len(node.shape) - len((nodes[ref(node.args[1]) or ""].shape or ())[2:])
        if bias.shape is None or len(bias.shape) != 1 or rank != 2 or bias.dtype != node.dtype:
            continue
        flat = (bias.shape[0], *(1,) * (len(node.shape) - 2))
        alone = node.model_copy(
            update={"name": f"{node.name}_c", "args": (*node.args[:2], None, *node.args[3:])}
        )
        laid = bias.model_copy(
            update={
                "name": f"{node.name}_b",
                "op": "aten.reshape.default",
                "args": (node.args[2], list(flat)),
                "kwargs": {},
                "target": None,
                "shape": flat,
                "strides": (1,) * len(flat),
            }
        )
        total = node.model_copy(
            update={
                "op": "aten.add.Tensor",
                "args": ({"ref": alone.name}, {"ref": laid.name}),
                "kwargs": {},
            }
        )
        replacement[node.name] = [alone, laid, total]
    return rebuilt(graph, replacement, {}) if replacement else None
