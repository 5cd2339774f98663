"""Sums of values of nearly one shape, over one set of loops: what they read in common is read once.

The horizontal differences of an image have one column less than the image, the vertical ones one row less. A loss adds the sums of both:
two kernels with different loops, which both read the image. Elements of value 0 complete each shape to the smallest that holds all of them;
then one kernel computes all sums.
"""

from __future__ import annotations

import math

from dvk import aten
from dvk.composer.ir.effects import is_view, refs
from dvk.composer.ir.nodes import View
from dvk.composer.ir.symint import arguments
from dvk.composer.lowering.dispatch import Lowering
from dvk.composer.lowering.pooling import bounded
from dvk.records import Graph, Node

RECIPE = "common_loops"
SUMS = ("sum", "mean")
LEAST = 0.8
"""Least share of the completed shape that each value fills."""
ELEMENTWISE = aten.of(*aten.POINTWISE)
Shape = tuple[int, ...]


def common_shapes(graph: Graph) -> dict[str, Shape]:
    """Name of a sum → the shape to which its operand is completed; sums that gain nothing are left out."""
    nodes = {node.name: node for node in graph.nodes}
    readers: dict[str, list[Node]] = {name: [] for name in nodes}
    for node in graph.nodes:
        for name in refs([list(node.args), node.kwargs]):
            readers[name].append(node)
    for name in refs(graph.outputs):
        readers[name].append(nodes[name])
    together: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        operand = nodes.get(_operand(node))
        if operand is not None and operand.shape and _packet(operand) in ELEMENTWISE:
            key = _end(node, readers), len(operand.shape), repr(node.args[1:]), node.shape
            together.setdefault(key, []).append(node)
    return {
        name: shape for sums in together.values() for name, shape in _completed(sums, nodes).items()
    }


def completed(low: Lowering, x: View, shape: Shape) -> View:
    """The operand of a sum with elements of value 0 behind each dimension."""
    behind = [whole - size for whole, size in zip(shape, x.shape, strict=True)]
    return bounded(low, x, [0] * len(shape), behind, 0.0)


def _packet(node: Node) -> str:
    return node.op.split(".")[1] if node.op.startswith("aten.") else ""


def _operand(node: Node) -> str:
    if _packet(node) not in SUMS or node.kwargs or not node.args:
        return ""
    return next(iter(refs([node.args[0]])), "")


def _end(node: Node, readers: dict[str, list[Node]]) -> str:
    """The last of the elementwise operators that follow a sum one by one: sums whose results meet have one end."""
    while len(readers[node.name]) == 1:
        (reader,) = readers[node.name]
        if reader is node or _packet(reader) not in ELEMENTWISE or reader.shape != node.shape:
            break
        node = reader
    return node.name


def _completed(sums: list[Node], nodes: dict[str, Node]) -> dict[str, Shape]:
    shapes = {node.name: tuple(nodes[_operand(node)].shape or ()) for node in sums}
    if arguments([size for shape in shapes.values() for size in shape]):
        return {}
    whole = tuple(max(sizes) for sizes in zip(*shapes.values(), strict=True))
    kept = {n: s for n, s in shapes.items() if math.prod(s) >= LEAST * math.prod(whole)}
    if len(kept) != len(sums) or len(set(kept.values())) < 2:
        return {}
    read = [_sources(nodes[_operand(node)], nodes, math.prod(whole)) for node in sums]
    return dict.fromkeys(kept, whole) if set.intersection(*read) else {}


def _sources(node: Node, nodes: dict[str, Node], size: int) -> set[str]:
    """Values of about the size of the loops that elementwise operators on views compute the node from."""
    pending, seen, found = [node.name], set[str](), set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        one = nodes[name]
        if _packet(one) in ELEMENTWISE or (_packet(one) and is_view(one)):
            pending += refs([list(one.args), one.kwargs])
        elif math.prod(one.shape or ()) >= LEAST * size:
            found.add(name)
    return found
