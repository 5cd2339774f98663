"""Decompose batch norm in training mode, so that statistics, normalisation and what follows become kernels.

    mean, var = moments of x over all dimensions but the channels
    y = (x − mean)/√(var + ε)·γ + β
    running ← running + momentum·(batch − running), of the variance with n − 1

The moments are computed in float32 for half types, as PyTorch does. The running statistics of all layers are written by one call
each of `torch._foreach_lerp_`, and their counters by one `torch._foreach_add_`, after everything that reads them. The first becomes
part of the kernels of the moments where these can do it (`fusion.moving_averages`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

from dvk.composer.ir.effects import written
from dvk.composer.rewrites.edit import packet, reads, rebuilt, ref, users
from dvk.records import Graph, Node

STATISTICS_TYPE = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}
"""Element type of the values → type of the moments."""


def rewrite(graph: Graph) -> Graph | None:
    """The graph with such norms decomposed, or None without one."""
    nodes = {node.name: node for node in graph.nodes}
    readers = users(graph)
    writes = Counter(name for node in graph.nodes for name in written(node))
    replacement: dict[str, list[Node]] = {}
    later: dict[tuple[str, float], list[tuple[Any, Any]]] = defaultdict(list)
    counters: dict[float, list[Any]] = defaultdict(list)
    for node in graph.nodes:
        if packet(node) == "batch_norm" and _is_training(node, nodes):
            made = _Norm(node, nodes)
            replacement[node.name] = made.nodes
            for running, batch in made.updates:
                name, momentum = ref(running) or "", float(node.args[6])
                if writes[name] == 1 and len(readers[name]) == 1:
                    later[nodes[name].dtype or "", momentum].append((running, batch))
                else:
                    made.add("lerp_.Scalar", [running, batch, momentum], nodes[name].shape)
            made.nodes.append(made.nodes.pop(made.position))  # the result comes last
        elif _is_counter(node, nodes, readers, writes):
            replacement[node.name] = []
            counters[node.args[1]].append(node.args[0])
    if not any(replacement.values()):
        return None
    calls = [
        Node(
            name=f"running_{number}",
            op="aten._foreach_lerp_.Scalar",
            args=([running for running, _ in pairs], [batch for _, batch in pairs], momentum),
        )
        for number, ((_, momentum), pairs) in enumerate(later.items())
    ]
    calls += [
        Node(name=f"counted_{number}", op="aten._foreach_add_.Scalar", args=(held, step))
        for number, (step, held) in enumerate(counters.items())
    ]
    result = rebuilt(graph, replacement, {})
    return result.model_copy(update={"nodes": (*result.nodes, *calls)})


class _Norm:
    """The nodes that compute one batch norm."""

    def __init__(self, node: Node, nodes: dict[str, Node]):
        x, weight, bias, mean, var, _, _, epsilon = node.args[:8]
        self.node = node
        self.nodes: list[Node] = []
        self.updates: list[tuple[Any, Any]] = []
        """Running statistics, and the batch's that they move towards."""
        shape = tuple(node.shape or ())
        channels, count = shape[1], math.prod(shape) // shape[1]
        flat = (1, channels, *(1,) * (len(shape) - 2))
        kind = STATISTICS_TYPE[node.dtype or ""]
        if kind != node.dtype:
            x = self.add("to.dtype", [x, {"dtype": kind}], shape, kind)
        moments = self.add(
            "var_mean.correction",
            [x, [d for d in range(len(shape)) if d != 1]],
            None,
            kwargs={"correction": 0, "keepdim": True},
        )
        variance, average = (
            self.add("", [moments, position], flat, kind, op="getitem") for position in (0, 1)
        )
        value = self.add("sub.Tensor", [x, average], shape, kind)
        shifted = self.add("add.Tensor", [variance, epsilon], flat, kind)
        value = self.add(
            "mul.Tensor", [value, self.add("rsqrt.default", [shifted], flat, kind)], shape, kind
        )
        for operand, name in ((weight, "mul.Tensor"), (bias, "add.Tensor")):
            if operand is not None:
                held = nodes[ref(operand) or ""]
                laid = self.add("reshape.default", [operand, list(flat)], flat, held.dtype)
                value = self.add(name, [value, laid], shape, kind)
        if kind != node.dtype:
            value = self.add("to.dtype", [value, {"dtype": node.dtype}], shape, node.dtype)
        self.nodes[-1] = self.nodes[-1].model_copy(
            update={"name": node.name, "strides": node.strides}
        )
        self.position = len(self.nodes) - 1
        if mean is not None:
            unbiased = self.add("mul.Tensor", [variance, count / max(count - 1, 1)], flat, kind)
            for running, batch in ((mean, average), (var, unbiased)):
                one = self.add("reshape.default", [batch, [channels]], (channels,), kind)
                self.updates.append((running, one))

    def add(
        self,
        name: str,
        args: list[Any],
        shape: tuple[int, ...] | None,
        dtype: str | None = None,
        *,
        op: str = "",
        kwargs: dict[str, Any] | None = None,
    ) -> dict[str, str]:
        """Append a node; returns its reference."""
        strides = None if shape is None else _strides(shape)
        if (
            shape is not None
            and len(shape) == len(self.node.shape or ())
            and shape == self.node.shape
        ):
            strides = self.node.strides
        made = Node(
            name=f"{self.node.name}_n{len(self.nodes)}",
            op=op or f"aten.{name}",
            args=tuple(args),
            kwargs=kwargs or {},
            shape=shape,
            dtype=dtype,
            strides=strides,
        )
        self.nodes.append(made)
        return {"ref": made.name}


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _is_training(node: Node, nodes: dict[str, Node]) -> bool:
    """A batch norm by the batch's statistics, of a supported type, whose momentum is a number."""
    if len(node.args) < 8 or node.kwargs or node.args[5] is not True or node.shape is None:
        return False
    running, momentum = node.args[3:5], node.args[6]
    if (running[0] is None) is not (running[1] is None) or 0 in node.shape:
        return False
    held = [nodes[ref(v) or ""] for v in (*node.args[1:3], *running) if v is not None]
    if any(one.op not in ("param", "buffer") or one.shape != (node.shape[1],) for one in held):
        return False
    source = nodes[ref(node.args[0]) or ""]
    return (
        type(momentum) in (int, float)
        and node.dtype in STATISTICS_TYPE
        and source.dtype == node.dtype
        and source.shape == node.shape
        and all(
            nodes[ref(v) or ""].dtype == STATISTICS_TYPE[node.dtype]
            for v in running
            if v is not None
        )
    )


def _is_counter(
    node: Node, nodes: dict[str, Node], readers: dict[str, list[Node]], writes: Counter[str]
) -> bool:
    """A counter of batches, written here and read nowhere."""
    if packet(node) != "add_" or len(node.args) != 2 or node.kwargs or readers[node.name]:
        return False
    name = ref(node.args[0]) or ""
    return (
        type(node.args[1]) is int
        and nodes[name].op == "buffer"
        and nodes[name].dtype == "int64"
        and nodes[name].shape == ()
        and writes[name] == 1
        and [one.name for one in readers[name]] == [node.name]
        and reads(node) == [name]
    )
