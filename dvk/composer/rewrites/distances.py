"""Take Euclidean distances of all pairs apart, as PyTorch computes them: |x - y|² = -2·x·y + |x|² + |y|².

PyTorch puts the squared norms into the product, as two more columns of each factor, and clamps and takes the root in a kernel each. Here
they are added behind the product, in the kernel that clamps, takes the root and does what follows. The terms are added in PyTorch's order;
a product of the plain factors is aligned. Only where PyTorch uses a product: more than 25 rows, or a mode that asks for it.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import pinned
from dvk.composer.lowering.dispatch import padded
from dvk.composer.rewrites.edit import packet, rebuilt, ref
from dvk.records import Graph, Node

BY_DIFFERENCES = 25
"""Rows up to which PyTorch subtracts instead of multiplying."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with products for distances, or None without any."""
    kept = pinned(graph)
    nodes = {node.name: node for node in graph.nodes}
    replacement = {
        node.name: _apart(node, nodes[ref(node.args[0]) or ""], nodes[ref(node.args[1]) or ""])
        for node in graph.nodes
        if node.name not in kept and _is_product(node, nodes)
    }
    return rebuilt(graph, replacement, {}) if replacement else None


def _is_product(node: Node, nodes: dict[str, Node]) -> bool:
    if packet(node) != "cdist" or node.kwargs or not node.shape or 0 in node.shape:
        return False
    power, mode = padded(list(node.args[2:]), 2.0, None)
    left, right = nodes[ref(node.args[0]) or ""], nodes[ref(node.args[1]) or ""]
    if left.dtype not in ("float32", "float64") or {left.dtype, right.dtype} != {node.dtype}:
        return False
    if left.shape is None or right.shape is None or not left.shape[-1]:
        return False
    large = max(left.shape[-2], right.shape[-2]) > BY_DIFFERENCES
    return power == 2 and (mode == 1 or (mode in (None, 0) and large))


def _apart(node: Node, left: Node, right: Node) -> list[Node]:
    """The nodes of one table of distances."""
    made: list[Node] = []

    def add(operator: str, shape: tuple[int, ...], *args: Any, **last: Any) -> dict[str, str]:
        made.append(
            Node(
                name=last.get("name", f"{node.name}_d{len(made)}"),
                op=f"aten.{operator}",
                args=args,
                kwargs={},
                shape=shape,
                dtype=node.dtype,
                strides=last.get("strides", contiguous_strides(shape)),
            )
        )
        return {"ref": made[-1].name}

    def norms(of: Node) -> dict[str, str]:
        shape, x = of.shape or (), {"ref": of.name}
        return add("sum.dim_IntList", (*shape[:-1], 1), add("mul.Tensor", shape, x, x), [-1], True)

    def turned(of: dict[str, str], shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        over = (*shape[:-2], shape[-1], shape[-2])
        steps = (*strides[:-2], strides[-1], strides[-2])
        return add("transpose.int", over, of, -2, -1, strides=steps)

    table, across = node.shape or (), (*(right.shape or ())[:-1], 1)
    rows = norms(left)
    columns = rows if left is right else norms(right)
    columns = turned(columns, across, contiguous_strides(across))
    other = turned({"ref": right.name}, right.shape or (), right.strides or ())
    product = add("matmul.default", table, {"ref": left.name}, other)
    value = add("mul.Tensor", table, product, -2)
    for squares in (rows, columns):
        value = add("add.Tensor", table, value, squares)
    value = add("clamp_min.default", table, value, 0)
    add("sqrt.default", table, value, name=node.name, strides=node.strides)
    return made
