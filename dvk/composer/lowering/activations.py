"""Lowering rules for activation functions, written as the formulas of the PyTorch documentation."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import draws
from dvk.composer.ir.nodes import FLOATS, View
from dvk.composer.lowering.dispatch import Lowering, padded, rule
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node


@rule("gelu")
def _gelu(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    if kwargs.get("approximate", "none") == "tanh":
        # (1 + tanh u) / 2 is the sigmoid of 2u, which has no cancellation.
        cube = low.pointwise("mul", low.pointwise("mul", x, x), x)
        inner = low.pointwise(
            "mul",
            low.pointwise("add", x, low.pointwise("mul", cube, 0.044715)),
            2 * math.sqrt(2 / math.pi),
        )
        return finish(low, node, low.pointwise("mul", x, low.pointwise("sigmoid", inner)))
    gate = low.pointwise("add", low.pointwise("erf", low.pointwise("mul", x, math.sqrt(0.5))), 1.0)
    if not _by_onednn(low, node):
        return finish(low, node, low.pointwise("mul", low.pointwise("mul", x, 0.5), gate))
    # oneDNN doubles large values before it halves them, and turns infinity into NaN, as x·0 does.
    return finish(
        low,
        node,
        low.pointwise(
            "add",
            low.pointwise("mul", low.pointwise("mul", x, gate), 0.5),
            low.pointwise("mul", x, 0.0),
        ),
    )


@cache
def _onednn_makes_nan() -> bool:
    """PyTorch's own gelu of an infinity is NaN on this machine's CPU."""
    import torch

    return bool(torch.nn.functional.gelu(torch.full((8,), math.inf)).isnan().any())


def _by_onednn(low: Lowering, node: Node) -> bool:
    """Eager computes this gelu in oneDNN: on a CPU, contiguous, more than one element, at most single precision."""
    source = low.nodes.get(node.args[0]["ref"])
    shape = node.shape or ()
    usual = source is not None and source.strides in (None, contiguous_strides(shape))
    return (
        low.device == "cpu"
        and usual
        and math.prod(shape) > 1
        and node.dtype != "float64"
        and _onednn_makes_nan()
    )


@rule(
    "silu", "mish", "softsign", "tanhshrink", "hardsigmoid", "hardswish", "log_sigmoid", "softplus"
)
def _activation(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name, x = node.op.split(".")[1], args[0]
    if node.dtype not in FLOATS:
        return None

    def softplus(value: View) -> View:
        # max(x, 0) + log1p(exp(-|x|)) cannot overflow and equals log(1 + exp(x)).
        tail = low.pointwise(
            "log1p",
            low.pointwise("exp", low.pointwise("neg", low.pointwise("abs", value))),
            unit=True,
        )
        return low.pointwise("add", low.pointwise("max", value, 0.0), tail)

    if name == "silu":
        y = low.pointwise("mul", x, low.pointwise("sigmoid", x))
    elif name == "mish":
        y = _mish(low, x)
    elif name == "softsign":
        y = low.pointwise("div", x, low.pointwise("add", low.pointwise("abs", x), 1.0))
    elif name == "tanhshrink":
        y = low.pointwise("sub", x, low.pointwise("tanh", x))
    elif name == "log_sigmoid":
        y = log_sigmoid(low, x)
    elif name == "softplus":
        beta, threshold = padded(args[1:], 1, 20)
        scaled = low.pointwise("mul", x, beta) if beta != 1 else x
        smooth = softplus(scaled)
        smooth = low.pointwise("div", smooth, beta) if beta != 1 else smooth
        y = low.pointwise("where", low.pointwise("gt", scaled, threshold), x, smooth)
    else:
        ramp = low.pointwise("min", low.pointwise("max", low.pointwise("add", x, 3.0), 0.0), 6.0)
        y = low.pointwise(
            "mul", low.pointwise("mul", x, ramp) if name == "hardswish" else ramp, 1 / 6
        )
    return finish(low, node, y)


def _mish(low: Lowering, x: View) -> View:
    """x·tanh(log(1 + w)) with w = exp(x), as x·n / (n + 2) with n = w·(w + 2): one function where there were three.

    From x = 20 on the quotient is 1, also in float64.
    """
    w = low.pointwise("exp", low.pointwise("min", x, 20.0))
    n = low.pointwise("mul", w, low.pointwise("add", w, 2.0))
    return low.pointwise("mul", x, low.pointwise("div", n, low.pointwise("add", n, 2.0)))


def log_sigmoid(low: Lowering, x: View) -> View:
    """min(x, 0) − log1p(exp(−|x|)), which cannot overflow."""
    return low.pointwise(
        "sub",
        low.pointwise("min", x, 0.0),
        low.pointwise(
            "log1p", low.pointwise("exp", low.pointwise("neg", low.pointwise("abs", x))), unit=True
        ),
    )


@rule("elu", "celu", "selu")
def _elu(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name, x = node.op.split(".")[1], args[0]
    alpha, scale, input_scale = 1.0, 1.0, 1.0
    if name == "selu":
        alpha, scale = 1.6732632423543772, 1.0507009873554805
    elif name == "celu":
        alpha = args[1] if len(args) > 1 else 1.0
        input_scale = 1 / alpha
    else:
        alpha, scale, input_scale = padded(args[1:], 1.0, 1.0, 1.0)
    bent = low.pointwise(
        "mul",
        low.pointwise("expm1", low.pointwise("mul", low.pointwise("min", x, 0.0), input_scale)),
        alpha,
    )
    return finish(
        low,
        node,
        low.pointwise("mul", low.pointwise("where", low.pointwise("gt", x, 0.0), x, bent), scale),
    )


@rule("leaky_relu", "prelu", "_prelu_kernel", "rrelu")
def _leaky(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    slope = kwargs.get("negative_slope", args[1] if len(args) > 1 else 0.01)
    if "rrelu" in node.op:
        if draws(node):
            return None
        bottom, top = padded(args[1:3], 0.125, 1 / 3)
        slope = (bottom + top) / 2
    if isinstance(slope, View) and len(x.shape) != 1 and len(slope.shape) == 1:
        tail = (slope.shape[0], *([1] * (len(x.shape) - 2))) if x.shape else ()
        slope = slope.then("reshape", tail, tail)
    return finish(
        low,
        node,
        low.pointwise("where", low.pointwise("gt", x, 0.0), x, low.pointwise("mul", x, slope)),
    )


@rule("threshold", "hardshrink", "softshrink")
def _threshold(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name, x = node.op.split(".")[1], args[0]
    if name == "threshold":
        y = low.pointwise("where", low.pointwise("le", x, args[1]), float(args[2]), x)
    else:
        lambd = args[1] if len(args) > 1 else 0.5
        inside = low.pointwise("le", low.pointwise("abs", x), lambd)
        y = (
            x
            if name == "hardshrink"
            else low.pointwise("sub", x, low.pointwise("mul", low.pointwise("sign", x), lambd))
        )
        # NaN is outside and stays NaN.
        y = low.pointwise(
            "where", inside, 0.0, low.pointwise("where", low.pointwise("isnan", x), x, y)
        )
    return finish(low, node, y)


@rule("glu")
def _glu(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", -1)) % len(x.shape)
    half = tuple(node.shape or ())
    left = x.then("slice", (dim, 0, 1), half)
    right = x.then("slice", (dim, half[dim], 1), half)
    return finish(low, node, low.pointwise("mul", left, low.pointwise("sigmoid", right)))
