"""Run 2-D convolutions in channels-last memory and keep their elementwise neighbours in that layout.

Only memory layout changes, so it is exact; measurement decides whether it pays. Weights are re-laid once and again whenever they are
written. Returned values keep PyTorch's layout.
"""

from __future__ import annotations

from dvk.composer.ir.effects import is_view
from dvk.composer.lowering.dispatch import RULES, pinned
from dvk.composer.rewrites.edit import (
    is_output,
    outputs_as_before,
    packet,
    rebuilt,
    ref,
    sees_layout,
    users,
)
from dvk.records import Graph, Node


def rewrite(graph: Graph) -> Graph | None:
    """The re-laid graph, or None without a 2-D convolution to re-lay."""
    readers = users(graph)
    kept = pinned(graph)
    if sees_layout(graph):
        return None
    laid: dict[str, tuple[int, ...]] = {}
    nodes = {n.name: n for n in graph.nodes}
    replacement: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if (
            packet(node) == "conv2d"
            and node.shape is not None
            and len(node.shape) == 4
            and node.name not in kept
        ):
            strides = _channels_last(node.shape)
            before = nodes[ref(node.args[0]) or ""]
            weight = nodes[ref(node.args[1]) or ""]
            made: list[Node] = []
            args = list(node.args)
            if before.name not in laid and before.strides != _channels_last(before.shape or ()):
                moved = before.model_copy(
                    update={
                        "name": f"{node.name}_x",
                        "op": "aten.contiguous.default",
                        "args": (args[0],),
                        "target": None,
                        "kwargs": {"memory_format": {"memory_format": "channels_last"}},
                        "strides": _channels_last(before.shape or ()),
                    }
                )
                made.append(moved)
                args[0] = {"ref": moved.name}
            strided = _channels_last(weight.shape or ())
            if weight.op in ("param", "buffer", "derived") and weight.strides != strided:
                relaid = weight.model_copy(
                    update={
                        "name": f"{node.name}_l",
                        "op": "derived",
                        "args": (args[1],),
                        "target": None,
                        "strides": strided,
                        "kwargs": {
                            "make": "lambda w: w.contiguous(memory_format=torch.channels_last)"
                        },
                    }
                )
                made.append(relaid)
                args[1] = {"ref": relaid.name}
            laid[node.name] = strides
            replacement[node.name] = [
                *made,
                node.model_copy(update={"args": tuple(args), "strides": strides}),
            ]
        elif (
            _elementwise(node, laid, nodes)
            and not is_output(readers[node.name])
            and node.name not in kept
        ):
            laid[node.name] = _channels_last(node.shape or ())
            replacement[node.name] = [node.model_copy(update={"strides": laid[node.name]})]
    return (
        outputs_as_before(rebuilt(graph, replacement, {}), graph, set(laid))
        if replacement
        else None
    )


def _elementwise(node: Node, laid: dict[str, tuple[int, ...]], nodes: dict[str, Node]) -> bool:
    name = packet(node)
    if name not in RULES or is_view(node) or node.shape is None or len(node.shape) != 4:
        return False
    return any(
        (source := ref(a)) in laid and nodes[source or ""].shape == node.shape for a in node.args
    )


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != 4:
        return ()
    _, channels, height, width = shape
    return (height * width * channels, 1, width * channels, channels)
