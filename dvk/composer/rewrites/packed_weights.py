"""Library calls on a CPU whose weights are packed once, in the layout that oneDNN computes with, and again whenever they are written.

From plain weights, oneDNN copies the weight into that layout in each call. The products and the order of the sums are the same. The
packed copy is as large as the weight. Activations stay in the kernels that follow: oneDNN's own turn NaN into 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dvk.composer.ir.effects import pinned
from dvk.composer.lowering.dispatch import padded
from dvk.composer.lowering.pooling import per_dim
from dvk.composer.rewrites.edit import packet, ref
from dvk.composer.rewrites.layout import CONVOLUTIONS, channels_last
from dvk.records import Graph, Node

RECIPE = "packed_weights"
HELD = ("param", "buffer", "derived")
LARGE = {1: 1 << 21, 2: 1 << 18}
"""Rows (2: or more) → elements of a linear's weight from which packing gains. Calls with weights of these sizes took 0.6 to 1.05 of the
time on one core of an AMD EPYC (AVX2), for 1 to 512 rows. One row with 1024 × 1024 took up to 1.2, and up to 64 rows with 256 × 256 up to
1.4, as the call itself costs more than the copy."""


@dataclass(frozen=True)
class Call:
    """A call of the library, in parts: encoded operands, and text."""

    function: str
    x: Any
    weight: Any
    bias: Any
    make: str
    """Source of the function that packs the weight."""
    numbers: tuple[str, ...] = ()


def calls(graph: Graph) -> dict[str, Call]:
    """The calls that may read a packed weight, by the name of their result."""
    nodes = {node.name: node for node in graph.nodes}
    kept = pinned(graph)
    found = ((node.name, _call(node, nodes)) for node in graph.nodes if node.name not in kept)
    return {name: call for name, call in found if call is not None}


def _call(node: Node, nodes: Mapping[str, Node]) -> Call | None:
    """The call with a packed weight; None for other operators, types, layouts, and weights that are arguments or computed."""
    if node.dtype != "float32" or node.kwargs or not node.shape or 0 in node.shape:
        return None
    return (_convolution if packet(node) in CONVOLUTIONS else _linear)(node, nodes)


def _convolution(node: Node, nodes: Mapping[str, Node]) -> Call | None:
    x, weight, bias, *rest = padded(list(node.args), None, None, None, 1, 0, 1, 1)
    held, before = nodes.get(ref(weight) or ""), nodes.get(ref(x) or "")
    shape = tuple(node.shape or ())
    count = len(shape) - 2
    if (
        packet(node) != f"conv{count}d"
        or before is None
        or before.shape is None
        or not _is_held(held, node)
        or node.strides != channels_last(shape)
    ):
        return None
    steps, ahead, gaps = (per_dim(value, count, []) for value in rest[:3])
    if not steps or not ahead or not gaps:
        return None
    numbers = tuple(repr(part) for part in (steps, ahead, gaps, rest[3]))
    sizes = [int(size) for size in before.shape]
    make = f"lambda w: dvk_packed_kernel(w, {sizes!r}, {', '.join(numbers)})"
    return Call("dvk_packed_convolution", x, weight, bias, make, numbers)


def _linear(node: Node, nodes: Mapping[str, Node]) -> Call | None:
    rows = int(math.prod((node.shape or ())[:-1]))
    if packet(node) == "linear":
        x, weight, bias = padded(list(node.args), None, None, None)
        turned = ""
    elif packet(node) == "addmm" and len(node.args) == 3:
        bias, x, weight = node.args
        turned = ".t()"
    else:
        return None
    held = nodes.get(ref(weight) or "")
    if turned and held is not None and _turns(held):
        weight, turned = held.args[0], ""
        held = nodes.get(ref(weight) or "")
    added = nodes.get(ref(bias) or "")
    if (
        not _is_held(held, node)
        or held is None
        or len(held.shape or ()) != 2
        or len(node.shape or ()) < 2
        or math.prod(held.shape or ()) < LARGE[min(rows, 2)]
        or (bias is not None and (added is None or added.shape != (node.shape or ())[-1:]))
    ):
        return None
    make = f"lambda w: dvk_packed_matrix(w{turned}, {rows})"
    return Call("dvk_packed_linear", x, weight, bias, make)


def _turns(node: Node) -> bool:
    """A transposed view of a matrix."""
    turned = packet(node), *node.args[1:]
    return turned in (
        ("t",),
        ("transpose", 0, 1),
        ("transpose", 1, 0),
        ("transpose", -2, -1),
        ("transpose", -1, -2),
        ("numpy_T",),
    )


def _is_held(weight: Node | None, node: Node) -> bool:
    """A weight of the module, or made of its weights, of the result's type."""
    return (
        weight is not None
        and weight.op in HELD
        and weight.dtype == node.dtype
        and weight.shape is not None
    )
