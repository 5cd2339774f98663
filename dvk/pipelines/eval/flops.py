"""Lower bound on the time of a reference's matmuls: their FLOPs at the highest rate that `dvk doctor` measured.

Counted from the captured graph: two operations a multiply-add of matmuls, convolutions and attention; all other operators are
memory-bound. A candidate that computes less than the reference may beat the bound: it is shown, and no verdict depends on it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from dvk import aten
from dvk.harness.timing.roofline import Ceilings
from dvk.records import Graph, Node, Task

RATES = {"float16": "fp16", "bfloat16": "bf16"}
"""The key of `Ceilings.gflops` for a result's type; others are fp32, or tf32 if the task says so."""


def flop_ms(graph: Graph | None, task: Task, ceilings: Ceilings | None) -> float | None:
    """Milliseconds of a call's matmuls at this machine's rate; None if the rate is unknown or there are no matmuls."""
    if graph is None or ceilings is None:
        return None
    shapes = {node.name: node.shape for node in graph.nodes}
    total = 0.0
    for node in graph.nodes:
        rate = ceilings.gflops.get(
            RATES.get(node.dtype or "", "tf32" if task.precision == "tf32" else "fp32")
        )
        if rate is None:
            rate = ceilings.gflops.get("fp32")
        count = flops(node, shapes)
        if count and rate:
            total += count / rate / 1e6
    return total or None


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
        return 2.0 * prod(node.shape) * left[-1] if node.shape is not None and left else 0.0
    if name in aten.of("convolution") and "transpose" not in name:
        weight, given = shape(1), shape(0)
        transposed = name.endswith("convolution") and len(node.args) > 6 and node.args[6] is True
        positions = (
            given if transposed else node.shape
        )  # a weight is used at every output, transposed at every input
        return 2.0 * prod(positions) * prod(weight[1:]) if positions and weight else 0.0
    if "scaled_dot_product" in name:
        query, key, value = shape(0), shape(1), shape(2)
        return (
            2.0 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
            if query and key and value
            else 0.0
        )
    return 0.0
