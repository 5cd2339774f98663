"""What a graph's operators cost by their shapes: bytes that each moves, floating-point operations of its matmuls.

Each operator reads its operands and writes its result once: the least that an unfused program moves. FLOPs are two a multiply-add of
matmuls, convolutions and attention; other operators are bound by memory. Nothing here is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dvk import aten
from dvk.records import Graph, Node

LEAVES = ("input", "param", "buffer", "const")

VIEWS = aten.of("view", "reshape", "cut") | {"getitem"}
"""Operators that only change a view of memory."""

BITS = {
    "bool": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "bfloat16": 16,
    "complex64": 64,
    "complex128": 128,
}


@dataclass(frozen=True)
class Operator:
    """One operator of the reference."""

    name: str
    """ATen name without prefix and overload."""
    result: str
    """`dtype[shape]` of the value; empty when it is not one tensor."""
    moved_bytes: int | None
    """Operands read plus result written; 0 for a view, None when a shape is unknown."""
    flops: float = 0.0
    """See `flops`."""


def operators(graph: Graph) -> list[Operator]:
    """The graph's operators in execution order."""
    by_name = {node.name: node for node in graph.nodes}
    shapes = {node.name: node.shape for node in graph.nodes}
    pieces: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if _short(node.op) == "getitem":
            for name in _refs(node.args):
                pieces.setdefault(name, []).append(node)
    return [
        Operator(
            _short(node.op),
            _outside(node),
            _moved(node, by_name, pieces.get(node.name, [])),
            flops(node, shapes),
        )
        for node in graph.nodes
        if node.op not in LEAVES
    ]


def least_bytes(graph: Graph) -> int | None:
    """Bytes that one kernel would move: used inputs and weights read once, outputs written once; None when unknown."""
    by_name = {node.name: node for node in graph.nodes}
    named = {name for node in graph.nodes for name in _refs([node.args, node.kwargs])}
    used = {name for name in named if by_name[name].op in LEAVES}
    return _total([by_name[name] for name in used | set(_refs(graph.outputs))])


def flops(node: Node, shapes: dict[str, tuple[int, ...] | None]) -> float:
    """FLOPs of one operator; 0 for operators without matmuls, or with unknown shapes.

    Args:
        shapes: shapes of every value of the graph, by name.
    """
    name = node.op.split(".")[1] if node.op.startswith("aten.") else ""

    def shape(place: int) -> tuple[int, ...] | None:
        value: Any = node.args[place] if place < len(node.args) else None
        return (
            shapes.get(value["ref"]) if isinstance(value, dict) and set(value) == {"ref"} else None
        )

    if name in aten.of("matmul") and name in aten.FACTORS:
        left = shape(aten.FACTORS[name][0])
        return 2.0 * math.prod(node.shape) * left[-1] if node.shape is not None and left else 0.0
    if name in aten.of("convolution") and "transpose" not in name:
        weight, given = shape(1), shape(0)
        transposed = name.endswith("convolution") and len(node.args) > 6 and node.args[6] is True
        positions = (
            given if transposed else node.shape
        )  # a weight is used at every output, transposed at every input
        return 2.0 * math.prod(positions) * math.prod(weight[1:]) if positions and weight else 0.0
    if "scaled_dot_product" in name:
        query, key, value = shape(0), shape(1), shape(2)
        return (
            2.0 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
            if query and key and value
            else 0.0
        )
    return 0.0


def _moved(node: Node, by_name: dict[str, Node], pieces: list[Node]) -> int | None:
    if _short(node.op) in VIEWS:
        return 0
    written = [node] if node.shape is not None else pieces
    if not written:
        return None
    return _total(
        [*written, *(by_name[name] for name in dict.fromkeys(_refs([node.args, node.kwargs])))]
    )


def _total(nodes: list[Node]) -> int | None:
    sizes = [_size(node) for node in nodes]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _size(node: Node) -> int | None:
    """Bytes of the memory behind a value: an expanded dimension (stride 0) occupies one element."""
    if node.shape is None or node.dtype is None:
        return None
    strides = node.strides if node.strides is not None else (1,) * len(node.shape)
    count = math.prod(
        size for size, stride in zip(node.shape, strides, strict=True) if stride != 0 or size == 0
    )
    digits = "".join(character for character in node.dtype if character.isdigit())
    bits = BITS.get(node.dtype) or int(digits or 0)
    return count * bits // 8 if bits else None


def _refs(value: Any) -> Iterator[str]:
    """Names of the values that an encoded operand refers to."""
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            yield str(value["ref"])
            return
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _refs(item)


def _short(op: str) -> str:
    """`aten.relu.default` → `relu`, `operator.getitem` → `getitem`."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def _outside(node: Node) -> str:
    return "" if node.shape is None else f"{node.dtype}[{','.join(map(str, node.shape))}]"
