"""Fold factors after a linear or convolution into its weights.

s·(Wx + b) = (s·W)x + s·b: exact in real arithmetic for every input; rounding differs in the last digits. It saves a pass over the result
only if no later kernel needs one anyway, so measurement decides. Only float32 and float64, and factors with which no weight overflows or
underflows. The scaled weights are recomputed whenever a weight is written.
"""

from __future__ import annotations

import math

from dvk.composer.ir.effects import pinned
from dvk.composer.rewrites.edit import packet, rebuilt, ref, users
from dvk.records import Graph, Node

LARGEST = 1e4
"""Largest factor; larger ones, those below its inverse, and products of several beyond it are left."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with folded factors, or None if there are none."""
    readers, kept = users(graph), pinned(graph)
    nodes = {n.name: n for n in graph.nodes}
    replacement: dict[str, list[Node]] = {}
    renamed: dict[str, str] = {}
    for first in graph.nodes:
        if packet(first) not in ("conv1d", "conv2d", "conv3d", "linear") or first.dtype not in (
            "float32",
            "float64",
        ):
            continue
        held = [name for name in map(ref, first.args[1:3]) if name is not None]
        if first.name in kept or any(
            nodes[n].op not in ("param", "buffer", "derived") or nodes[n].dtype != first.dtype
            for n in held
        ):
            continue
        factors: list[Node] = []
        last = first
        while (
            len(readers[last.name]) == 1
            and _factor(following := readers[last.name][0])
            and following.name not in kept
        ):
            last = following
            factors.append(last)
        factor = math.prod(map(_factor, factors))
        if (
            not factors
            or not _bearable(factor)
            or (last.shape, last.dtype, last.strides) != (first.shape, first.dtype, first.strides)
        ):
            continue
        scaled = [
            nodes[name].model_copy(
                update={
                    "name": f"{first.name}_f{position}",
                    "op": "derived",
                    "args": ({"ref": name},),
                    "target": None,
                    "kwargs": {"make": f"lambda w: w * {factor!r}"},
                }
            )
            for position, name in enumerate(held)
        ]
        refs = [{"ref": node.name} for node in scaled]
        replacement[first.name] = [
            *scaled,
            first.model_copy(update={"args": (first.args[0], *refs, *first.args[1 + len(refs) :])}),
        ]
        for node in factors:
            replacement[node.name] = []
            renamed[node.name] = first.name
    return rebuilt(graph, replacement, renamed) if replacement else None


def _factor(node: Node) -> float:
    """The factor by which the operator multiplies its first operand; 0 for another operator or too large a factor."""
    if (
        packet(node) not in ("mul", "div")
        or len(node.args) != 2
        or node.kwargs
        or not ref(node.args[0])
    ):
        return 0.0
    by = node.args[1]
    if type(by) not in (int, float) or not _bearable(by):
        return 0.0
    return float(by) if packet(node) == "mul" else 1 / by


def _bearable(factor: float) -> bool:
    return 1 / LARGEST <= abs(factor) <= LARGEST
