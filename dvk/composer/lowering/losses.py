"""Lowering rules for losses: elementwise ones with a reduction, cross entropy, cosine similarity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dvk.composer.ir.nodes import FLOATS, View
from dvk.composer.ir.symint import over
from dvk.composer.lowering.activations import log_sigmoid
from dvk.composer.lowering.dispatch import Lowering, rule
from dvk.composer.lowering.pointwise import finish
from dvk.composer.lowering.reductions import argument, mean, softmax, widened
from dvk.records import Node


def _reduced(low: Lowering, node: Node, loss: View, reduction: int) -> View:
    if reduction == 0:
        return finish(low, node, loss)
    return finish(
        low,
        node,
        mean(low, loss, (), False) if reduction == 1 else low.reduce("sum", loss, (), False),
    )


Loss = Callable[[Lowering, View, View, list[Any], dict[str, Any]], "View | None"]


def _elementwise(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """A loss of one pair of elements each, reduced."""
    name = node.op.split(".")[1]
    x, y = args[0], args[1]
    if node.dtype not in FLOATS or not isinstance(y, View) or x.shape != y.shape or not x.shape:
        return None
    position, function = LOSSES[name]
    loss = function(low, widened(low, x), widened(low, y), args, kwargs)
    if loss is None:
        return None
    return _reduced(low, node, loss, argument(args, kwargs, position, "reduction", 1))


def _squared(
    low: Lowering, x: View, y: View, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    gap = low.pointwise("sub", x, y)
    return low.pointwise("mul", gap, gap)


def _absolute(
    low: Lowering, x: View, y: View, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    return low.pointwise("abs", low.pointwise("sub", x, y))


def _huber(low: Lowering, x: View, y: View, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """delta · smooth_l1."""
    width = argument(args, kwargs, 3, "delta", 1.0)
    parts = _quadratic_and_linear(low, x, y, width)
    if parts is None:
        return None
    near, square, linear = parts
    return low.pointwise("where", near, square, low.pointwise("mul", linear, width))


def _smooth(
    low: Lowering, x: View, y: View, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    width = argument(args, kwargs, 3, "beta", 1.0)
    parts = _quadratic_and_linear(low, x, y, width)
    if parts is None:
        return None
    near, square, linear = parts
    return low.pointwise("where", near, low.pointwise("mul", square, 1.0 / width), linear)


def _quadratic_and_linear(
    low: Lowering, x: View, y: View, width: float
) -> tuple[View, View, View] | None:
    """Where |x - y| < width, half of its square, and |x - y| - width/2; None if the width is 0."""
    if width == 0:
        return None
    gap = low.pointwise("sub", x, y)
    size = low.pointwise("abs", gap)
    square = low.pointwise("mul", low.pointwise("mul", gap, gap), 0.5)
    linear = low.pointwise("sub", size, 0.5 * width)
    return low.pointwise("lt", size, width), square, linear


def _weighted(low: Lowering, loss: View, weight: Any) -> View:
    return low.pointwise("mul", loss, weight) if weight is not None else loss


def _bce_logits(
    low: Lowering, x: View, y: View, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    positive = argument(args, kwargs, 3, "pos_weight", None)
    # As eager: max(x, 0) − x·y would be inf − inf for an infinite x.
    tail = log_sigmoid(low, x)
    if positive is not None:
        more = low.pointwise("mul", low.pointwise("sub", positive, 1.0), y)
        tail = low.pointwise("mul", low.pointwise("add", more, 1.0), tail)
    loss = low.pointwise("sub", low.pointwise("mul", low.pointwise("sub", 1.0, y), x), tail)
    return _weighted(low, loss, argument(args, kwargs, 2, "weight", None))


def _bce(low: Lowering, x: View, y: View, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    yes, no = (
        low.pointwise("max", low.pointwise("log", p), -100.0)
        for p in (x, low.pointwise("sub", 1.0, x))
    )
    both = low.pointwise(
        "add", low.pointwise("mul", y, yes), low.pointwise("mul", low.pointwise("sub", 1.0, y), no)
    )
    loss = low.pointwise("neg", both)
    # PyTorch raises for a target outside; the logarithm of a value outside is NaN.
    inside = low.pointwise(
        "and", low.pointwise("ge", y, 0.0), low.pointwise("le", y, 1.0), compute="bool"
    )
    loss = low.pointwise("where", inside, loss, math.nan)
    return _weighted(low, loss, argument(args, kwargs, 2, "weight", None))


def _kl_div(
    low: Lowering, x: View, y: View, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    if argument(args, kwargs, 3, "log_target", False):
        return low.pointwise("mul", low.pointwise("exp", y), low.pointwise("sub", y, x))
    entropy = low.pointwise(
        "where", low.pointwise("eq", y, 0.0), 0.0, low.pointwise("mul", y, low.pointwise("log", y))
    )
    return low.pointwise("sub", entropy, low.pointwise("mul", x, y))


def _soft_margin(
    low: Lowering, x: View, y: View, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    return low.pointwise(
        "log1p", low.pointwise("exp", low.pointwise("neg", low.pointwise("mul", x, y)))
    )


LOSSES: dict[str, tuple[int, Loss]] = {
    "mse_loss": (2, _squared),
    "l1_loss": (2, _absolute),
    "smooth_l1_loss": (2, _smooth),
    "huber_loss": (2, _huber),
    "binary_cross_entropy_with_logits": (4, _bce_logits),
    "kl_div": (2, _kl_div),
    "binary_cross_entropy": (3, _bce),
    "soft_margin_loss": (2, _soft_margin),
}
"""Operator → position of `reduction`, and the loss of one element."""
rule(*LOSSES)(_elementwise)


@rule("cross_entropy_loss", "nll_loss", "nll_loss_nd")
def _cross_entropy(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    x, target = args[0], args[1]
    weight = argument(args, kwargs, 2, "weight", None)
    reduction = argument(args, kwargs, 3, "reduction", 1)
    ignore = argument(args, kwargs, 4, "ignore_index", -100)
    smoothing = argument(args, kwargs, 5, "label_smoothing", 0.0) if "cross" in node.op else 0.0
    if weight is not None or node.dtype not in FLOATS or len(x.shape) < 2:
        return None
    if "cross" in node.op and target.dtype in FLOATS:
        return _soft_cross_entropy(low, node, x, target, reduction, smoothing)
    if target.dtype != "int64":
        return None
    logp = softmax(low, widened(low, x), 1, log=True) if "cross" in node.op else widened(low, x)
    spread = (target.shape[0], 1, *target.shape[1:])
    chosen = target.then("reshape", spread, spread)
    position = low.pointwise("iota", shape=x.shape, dim=1, compute="int64")
    hit = low.pointwise("where", low.pointwise("eq", position, chosen), logp, 0.0)
    loss = low.pointwise("neg", low.reduce("sum", hit, (1,), False))
    if smoothing:
        rest = low.pointwise(
            "mul", low.reduce("sum", logp, (1,), False), over(-smoothing, x.shape[1])
        )
        loss = low.pointwise("add", low.pointwise("mul", loss, 1.0 - smoothing), rest)
    valid = low.pointwise("ne", target, ignore)
    # PyTorch raises if there is no such class.
    inside = low.pointwise(
        "and",
        low.pointwise("ge", target, 0),
        low.pointwise("lt", target, x.shape[1]),
        compute="bool",
    )
    loss = low.pointwise("where", valid, low.pointwise("where", inside, loss, math.nan), 0.0)
    if reduction != 1:
        return _reduced(low, node, loss, reduction)
    counted = low.reduce("sum", low.typed(valid, logp.dtype), (), False)
    return finish(low, node, low.pointwise("div", low.reduce("sum", loss, (), False), counted))


def _soft_cross_entropy(
    low: Lowering, node: Node, x: View, target: View, reduction: int, smoothing: float
) -> View:
    """Cross entropy against a probability of every class."""
    wanted = widened(low, target)
    if smoothing:
        wanted = low.pointwise(
            "add", low.pointwise("mul", wanted, 1.0 - smoothing), over(smoothing, x.shape[1])
        )
    loss = low.pointwise(
        "neg",
        low.reduce(
            "sum",
            low.pointwise("mul", softmax(low, widened(low, x), 1, log=True), wanted),
            (1,),
            False,
        ),
    )
    return _reduced(low, node, loss, reduction)


@rule("cosine_similarity")
def _cosine(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    a, b = widened(low, args[0]), widened(low, args[1])
    dim = argument(args, kwargs, 2, "dim", 1)
    eps = argument(args, kwargs, 3, "eps", 1e-8)
    if node.dtype not in FLOATS or a.shape != b.shape:
        return None
    # As in PyTorch: the vectors are divided first, so that rows whose norm overflows give 0 instead of infinity minus infinity.
    units = []
    for v in (a, b):
        squares = low.reduce("sum", low.pointwise("mul", v, v), (dim,), True)
        size = low.pointwise("max", low.pointwise("sqrt", squares), eps)
        units.append(low.pointwise("mul", v, low.pointwise("div", 1.0, size)))
    return finish(low, node, low.reduce("sum", low.pointwise("mul", *units), (dim,), False))
