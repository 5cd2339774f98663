"""Lowering rules for reductions and the operators built on them: softmax and norms.

Every norm and softmax is written as its definition over primitives; the fuser puts all steps of one row into one kernel. Variance is
two-pass (mean first), which loses no digits.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.ir.nodes import FLOATS, View, register_type
from dvk.composer.ir.symint import over
from dvk.composer.lowering.common_loops import completed
from dvk.composer.lowering.dispatch import Lowering, rule
from dvk.composer.lowering.pointwise import converted, finish
from dvk.records import Node

FEW_PARTS = 4
"""Outputs of a convolution that are added up where they are computed."""


def _dims(value: Any) -> tuple[int, ...]:
    return () if value is None else (value,) if isinstance(value, int) else tuple(value)


def argument(
    args: list[Any], kwargs: dict[str, Any], position: int, name: str, default: Any
) -> Any:
    return kwargs.get(name, args[position] if len(args) > position else default)


def _count(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    return math.prod(shape[d] for d in dims) if dims else math.prod(shape)


def widened(low: Lowering, x: View, dtype: str | None = None) -> View:
    """The operand in the accumulator type of sums."""
    return low.typed(x, "float64" if "float64" in (x.dtype, dtype) else "float32")


def mean(
    low: Lowering, x: View, dims: tuple[int, ...], keepdim: bool, count: int | None = None
) -> View:
    """Arithmetic mean over `dims` (all if empty); `count` elements if some only complete the shape."""
    count = _count(x.shape, dims) if count is None else count
    total = low.reduce("sum", x, dims, keepdim)
    if x.dtype == "float64":  # its sum of equal floats is exact, and so is their mean
        return low.pointwise("div", total, count)
    return low.pointwise("mul", total, over(1.0, count))


def variance(
    low: Lowering, x: View, average: View, dims: tuple[int, ...], keepdim: bool, correction: float
) -> View:
    """Two-pass variance with divisor N − correction; `average` is the mean over `dims`, which it keeps."""
    centred = low.pointwise("sub", x, average)
    total = low.reduce("sum", low.pointwise("mul", centred, centred), dims, keepdim)
    return low.pointwise("mul", total, over(1.0, _count(x.shape, dims) - correction))


def _is_of_windows(low: Lowering, x: View, dims: tuple[int, ...]) -> bool:
    """Few outputs of a convolution through windows are summed, on a GPU: a second kernel would read what one kernel can add.

    The windows of two sums are in one kernel only if no padding is computed for both.
    """
    if low.device != "cuda" or len(dims) != 1 or not 1 < x.shape[dims[0]] <= FEW_PARTS:
        return False
    seen, pending = {x.base}, [x.base]
    while pending:
        one = pending.pop()
        if one.kind == "reduce":
            times = one.operands[0].base if isinstance(one.operands[0], View) else one
            read = [o.base.op for o in times.operands if isinstance(o, View)]
            through = one.attrs.get("window") and one.attrs.get("contracted")
            return bool(through) and "bounded" not in read
        below = {o.base for o in one.operands if isinstance(o, View)} if one.kind == "pw" else set()
        pending += below - seen
        seen |= below
    return False


def _sum_of_parts(low: Lowering, x: View, dims: tuple[int, ...], keepdim: bool) -> View:
    """The sum over one short dimension as a sum of slices, each computed alone."""
    (dim,) = dims
    one = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
    total = low.push_views(x.then("slice", (dim, 0, 1), one))
    for at in range(1, x.shape[dim]):
        total = low.pointwise("add", total, x.then("slice", (dim, at, 1), one))
    kept = one if keepdim else (*one[:dim], *one[dim + 1 :])
    return total.then("reshape", kept, kept)


@rule("sum", "mean", "amax", "amin", "max", "min", "prod")
def _reduce(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | tuple[View, ...] | None:
    name, x = node.op.split(".")[1], args[0]
    if node.op in ("aten.max.dim", "aten.min.dim"):
        return _values(low, node, args, kwargs)
    if not isinstance(x, View) or node.dtype is None or not x.shape:
        return None
    if name in ("max", "min") and len(args) > 1:
        if not isinstance(args[1], View):
            return None
        pair = [converted(low, v, node.dtype) for v in (x, args[1])]
        return finish(low, node, low.pointwise(name, *pair, compute=register_type(node.dtype)))
    if name == "prod" and len(args) > 1 and isinstance(args[1], dict):
        return None
    dims = tuple(d % len(x.shape) for d in _dims(argument(args, kwargs, 1, "dim", None)))
    keepdim = bool(argument(args, kwargs, 2, "keepdim", False))
    if name in ("sum", "mean", "prod"):
        if node.dtype not in FLOATS:
            if name != "sum" or node.dtype != "int64":
                return None
            return low.reduce("sum", low.typed(x, "int64"), dims, keepdim)
        wide, count = widened(low, x, node.dtype), None
        if node.name in low.completed:
            wide, count = completed(low, wide, low.completed[node.name]), _count(x.shape, dims)
        return finish(
            low,
            node,
            mean(low, wide, dims, keepdim, count)
            if name == "mean"
            else _sum_of_parts(low, wide, dims, keepdim)
            if name == "sum" and _is_of_windows(low, wide, dims)
            else low.reduce(name, wide, dims, keepdim),
        )
    if x.dtype not in FLOATS:
        return None
    return finish(
        low,
        node,
        low.reduce(name.removeprefix("a"), low.typed(x, register_type(x.dtype)), dims, keepdim),
    )


def _values(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[View, ...] | None:
    """`x.max(dim)` whose indices are unused."""
    x, keepdim = args[0], bool(argument(args, kwargs, 2, "keepdim", False))
    if low.read_parts.get(node.name) != {0} or x.dtype not in FLOATS or not x.shape:
        return None
    value = low.reduce(
        node.op.split(".")[1], low.typed(x, register_type(x.dtype)), _dims(args[1]), keepdim
    )
    return (low.typed(value, x.dtype),)


@rule("var", "std", "var_mean", "std_mean")
def _var(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | tuple[View, ...] | None:
    x = args[0]
    if x.dtype not in FLOATS:
        return None
    correction: Any = 1
    dims: tuple[int, ...] = ()
    keepdim = bool(kwargs.get("keepdim", False))
    overload = node.op.split(".")[2]
    if overload == "correction":
        dims = _dims(argument(args, kwargs, 1, "dim", None))
        correction = kwargs.get("correction", 1)
        correction = 1 if correction is None else correction
    elif overload == "dim":
        dims, correction = _dims(args[1]), int(argument(args, kwargs, 2, "unbiased", True))
        keepdim = bool(argument(args, kwargs, 3, "keepdim", False))
    elif overload == "default":
        correction = int(argument(args, kwargs, 1, "unbiased", True))
    else:
        return None
    dims = tuple(d % len(x.shape) for d in dims)
    if _count(x.shape, dims) <= correction:
        return None
    # On CPUs eager computes in double precision: no square of a float is infinite, and equal values have variance 0.
    wide = low.typed(x, "float64") if low.device == "cpu" else widened(low, x)
    average = mean(low, wide, dims, True)
    value = variance(low, wide, average, dims, keepdim, correction)
    value = low.typed(low.pointwise("sqrt", value) if "std" in node.op else value, x.dtype)
    if "_mean" not in node.op:
        return value
    if not keepdim:
        average = average.then("reshape", value.shape, value.shape)
    # Eager updates a running mean: an infinite element turns it into NaN. The variance is NaN then, too, but the mean must not depend on
    # its sum: Triton 3.6 does not compile such a kernel ("operand #0 does not dominate this use").
    middle = low.pointwise("where", low.pointwise("isinf", average), math.nan, average)
    return value, low.typed(middle, x.dtype)


@rule("linalg_vector_norm", "norm")
def _norm(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    order = argument(args, kwargs, 1, "ord" if "linalg" in node.op else "p", 2)
    dims = _dims(argument(args, kwargs, 2, "dim", None))
    keepdim = bool(argument(args, kwargs, 3, "keepdim", False))
    if (
        node.dtype not in FLOATS
        or order not in (1, 2, math.inf)
        or isinstance(order, bool)
        or kwargs.get("dtype")
        or not x.shape
    ):
        return None
    return finish(low, node, norm(low, widened(low, x), order, dims, keepdim))


def norm(low: Lowering, x: View, order: float, dims: tuple[int, ...], keepdim: bool) -> View:
    """Vector norm of order 1, 2 or infinity."""
    if order == 2:
        return low.pointwise("sqrt", low.reduce("sum", low.pointwise("mul", x, x), dims, keepdim))
    return low.reduce("sum" if order == 1 else "max", low.pointwise("abs", x), dims, keepdim)


@rule("pairwise_distance")
def _pairwise_distance(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    order, eps, keepdim = (
        argument(args, kwargs, n, k, d)
        for n, k, d in ((2, "p", 2.0), (3, "eps", 1e-6), (4, "keepdim", False))
    )
    if node.dtype not in FLOATS or order not in (1, 2, math.inf):
        return None
    gap = low.pointwise(
        "add", low.pointwise("sub", widened(low, args[0]), widened(low, args[1])), eps
    )
    return finish(low, node, norm(low, gap, order, (len(gap.shape) - 1,), bool(keepdim)))


@rule("softmax", "log_softmax", "_softmax", "_log_softmax")
def _softmax(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if node.dtype not in FLOATS or not args[0].shape:
        return None
    value = softmax(low, widened(low, args[0], node.dtype), args[1], log="log" in node.op)
    return finish(low, node, value)


def softmax(low: Lowering, x: View, dim: int, log: bool) -> View:
    """Softmax or its logarithm along one dimension, shifted by the row's maximum."""
    shifted = low.pointwise("sub", x, low.reduce("max", x, (dim,), True))
    powers = low.pointwise("exp", shifted)
    total = low.reduce("sum", powers, (dim,), True)
    return (
        low.pointwise("sub", shifted, low.pointwise("log", total))
        if log
        else low.pointwise("mul", powers, low.pointwise("reciprocal", total))
    )


@rule("logsumexp")
def _logsumexp(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dims = args[0], _dims(args[1])
    if node.dtype not in FLOATS or not x.shape or not dims:
        return None
    wide = widened(low, x)
    peak = low.reduce("max", wide, dims, True)
    # A row of -inf has peak -inf, and -inf − (-inf) is NaN: shift such rows by 0.
    shift = low.pointwise("where", low.pointwise("isinf", peak), 0.0, peak)
    total = low.reduce("sum", low.pointwise("exp", low.pointwise("sub", wide, shift)), dims, True)
    value = low.pointwise("add", low.pointwise("log", total), shift)
    after = tuple(node.shape or ())
    return finish(low, node, value.then("reshape", after, after))


def _affine(
    low: Lowering, x: View, weight: View | None, bias: View | None, shape: tuple[int, ...]
) -> View:
    if weight is not None:
        x = low.pointwise("mul", x, weight.then("reshape", shape, shape))
    return low.pointwise("add", x, bias.then("reshape", shape, shape)) if bias is not None else x


def _standardize(low: Lowering, x: View, dims: tuple[int, ...], eps: float) -> View:
    centred = low.pointwise("sub", x, mean(low, x, dims, True))
    spread = low.pointwise(
        "mul",
        low.reduce("sum", low.pointwise("mul", centred, centred), dims, True),
        over(1.0, _count(x.shape, dims)),
    )
    return low.pointwise("mul", centred, low.pointwise("rsqrt", low.pointwise("add", spread, eps)))


EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-23, "bfloat16": 2.0**-23}
"""Default epsilon of RMS norm: the spacing at 1 of its compute type."""


def _follows_mean(x: View, weight: View | None, dims: tuple[int, ...]) -> bool:
    """PyTorch's RMS norm on GPUs computes mean and variance of the row, as layer norm does, instead of summing squares.

    It sums squares of rows that allow reads of four elements at once.
    """
    return (weight is None or weight.dtype == x.dtype) and (
        x.dtype == "float64" or _count(x.shape, dims) % 4 != 0
    )


@rule("layer_norm", "rms_norm")
def _layer_norm(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, normalized = args[0], args[1]
    if node.dtype not in FLOATS:
        return None
    dims = tuple(range(len(x.shape) - len(normalized), len(x.shape)))
    wide = widened(low, x)
    weight = argument(args, kwargs, 2, "weight", None)
    shape = tuple(normalized)
    if "rms_norm" in node.op:
        eps = argument(args, kwargs, 3, "eps", None)
        eps = EPSILON[x.dtype] if eps is None else eps
        power = mean(low, low.pointwise("mul", wide, wide), dims, True)
        if low.device == "cuda" and _follows_mean(x, weight, dims):
            total = low.reduce("sum", wide, dims, True)
            power = low.pointwise(
                "add", power, low.pointwise("sub", total, total)
            )  # an infinity in the row turns all of it into NaN
        y = low.pointwise("mul", wide, low.pointwise("rsqrt", low.pointwise("add", power, eps)))
        return finish(low, node, _affine(low, y, weight, None, shape))
    bias = argument(args, kwargs, 3, "bias", None)
    y = _standardize(low, wide, dims, argument(args, kwargs, 4, "eps", 1e-5))
    return finish(low, node, _affine(low, y, weight, bias, shape))


@rule("group_norm", "instance_norm")
def _group_norm(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    batch, channels, *space = x.shape
    if node.dtype not in FLOATS:
        return None
    if "instance" in node.op:
        if not args[5]:
            return _affine_norm(low, node, args)
        if args[3] is not None or not space:
            return None
        groups, weight, bias, eps = channels, args[1], args[2], args[7]
    else:
        groups, weight, bias, eps = (
            args[1],
            args[2],
            args[3],
            argument(args, kwargs, 4, "eps", 1e-5),
        )
    grouped = (batch, groups, channels // groups, *space)
    wide = widened(low, x).then("reshape", grouped, grouped)
    y = _standardize(low, wide, tuple(range(2, len(grouped))), eps)
    # A pointwise step pins the grouped shape as this value's own, so that the view back is one step.
    y = low.pointwise("as", y, dtype=y.dtype, compute=y.dtype).then("reshape", x.shape, x.shape)
    return finish(low, node, _affine(low, y, weight, bias, (channels, *([1] * len(space)))))


@rule("batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training")
def _batch_norm(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if (
        node.op.split(".")[1] != "batch_norm"
        or args[5]
        or args[3] is None
        or node.dtype not in FLOATS
    ):
        return None
    return _affine_norm(low, node, args)


def _affine_norm(low: Lowering, node: Node, args: list[Any]) -> View:
    """Batch or instance norm with fixed statistics: one scale and shift per channel."""
    x, weight, bias, mean_, var, _training, _momentum, eps = args[:8]
    shape = (x.shape[1], *([1] * (len(x.shape) - 2)))
    scale = low.pointwise("rsqrt", low.pointwise("add", var.then("reshape", shape, shape), eps))
    centred = low.pointwise("sub", widened(low, x), mean_.then("reshape", shape, shape))
    return finish(
        low, node, _affine(low, low.pointwise("mul", centred, scale), weight, bias, shape)
    )
