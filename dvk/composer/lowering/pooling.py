"""Lowering rules for reads through bounds: pooling windows and constant padding.

A window is an affine view: output position o and place k in the window read o·stride + k·dilation − padding. Reads outside give the
identity of the reduction, which a `bounded` value declares once for its whole prologue: the fuser moves the elementwise work before a pool
into the window, and guards the loads below it.

Windows that do not overlap and cover a whole dimension are ordinary reductions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dvk.composer.ir.nodes import FLOATS, IRNode, View, ViewStep, register_type, rounded
from dvk.composer.ir.primitives import PRIMITIVES
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, is_number, padded
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node

RECIPE = "own_windows"
MAX_REPEATED = 24
"""Maximum operations per input element, over all windows that contain it; beyond, its value is better stored once."""
"""Cost of each of these, in simple operations."""


@dataclass(frozen=True)
class PoolingWindow:
    """The window along one dimension: `count` outputs of `size` elements each; lengths in elements."""

    dim: int
    length: int
    count: int
    size: int
    stride: int
    ahead: int = 0
    """Elements of padding before the first."""
    dilation: int = 1

    @property
    def behind(self) -> int:
        """Elements that the last window reads beyond the end."""
        return max(
            0,
            (self.count - 1) * self.stride
            + (self.size - 1) * self.dilation
            + 1
            - self.length
            - self.ahead,
        )

    def ends(self, at: int, whole: bool) -> int:
        """Number of elements that count in window `at`: those of the input, or with its padding if `whole`."""
        start = at * self.stride - self.ahead
        end = min(start + self.size, self.length + self.ahead)
        return end - start if whole else min(end, self.length) - max(start, 0)


def bounded(
    low: Lowering,
    x: View,
    ahead: Sequence[int],
    behind: Sequence[int],
    fill: float,
    implicit: bool = False,
) -> View:
    """`x` padded with the given numbers of elements of value `fill` before and after each dimension.

    Args:
        implicit: it is read by an implicit matmul, and reads memory itself.
    """
    shape = tuple(a + size + b for a, size, b in zip(ahead, x.shape, behind, strict=True))
    if shape == x.shape:
        return x
    if x.base.kind == "pw" and _merged(x):
        low.kept_whole.add(x.base)
    step = ViewStep("pad", tuple(ahead), x.shape, shape)
    return low.pointwise(
        "bounded",
        x.then("pad", step.args, shape),
        shape=shape,
        dtype=x.dtype,
        compute=register_type(x.dtype),
        steps=(step,),
        fill=rounded(fill, x.dtype),
        **({"implicit": True} if implicit else {}),
    )


def windows(
    low: Lowering, x: View, over: Sequence[PoolingWindow], fill: float, implicit: bool = False
) -> View:
    """The windows of `x`, their elements as new last dimensions; outside of `x` the value is `fill`.

    Args:
        implicit: see `bounded`.
    """
    overlap = math.prod(max(w.size / w.stride, 1.0) for w in over)
    if overlap > 1 and x.base.kind == "pw" and _operations(x.base) * (overlap - 1) > MAX_REPEATED:
        low.kept_whole.add(x.base)
    ahead, behind = [0] * len(x.shape), [0] * len(x.shape)
    for w in over:
        ahead[w.dim], behind[w.dim] = w.ahead, w.behind
    x = bounded(low, x, ahead, behind, fill, implicit)
    after = list(x.shape)
    for w in over:
        after[w.dim] = w.count
    return x.then(
        "windows",
        tuple((w.dim, w.size, w.stride, w.dilation) for w in over),
        (*after, *(w.size for w in over)),
    )


def _merged(x: View) -> bool:
    """Bounds come before a reshape that merges or splits dimensions: an index that may be out of bounds has no position after it."""
    computed = _computed(x.base)
    steps = [
        *x.steps,
        *(s for p in computed for o in p.operands if isinstance(o, View) for s in o.steps),
        *(s for p in computed for s in p.attrs.get("steps", ())),
    ]
    merging = any(
        s.method == "reshape" and [n for n in s.before if n > 1] != [n for n in s.after if n > 1]
        for s in steps
    )
    return merging and any(p.op == "bounded" for p in computed)


def _computed(prim: IRNode) -> set[IRNode]:
    """A pointwise value and its dependencies, down to the values in memory."""
    seen: set[IRNode] = set()
    pending = [prim]
    while pending:
        one = pending.pop()
        if one not in seen and one.kind == "pw":
            seen.add(one)
            pending.extend(o.base for o in one.operands if isinstance(o, View))
    return seen


def _operations(prim: IRNode) -> int:
    """Cost of computing one element of a pointwise value."""
    seen = _computed(prim)
    return sum(max(PRIMITIVES[p.op].cost, int(p.op == "cast")) for p in seen)


def reduced(
    low: Lowering, op: str, x: View, over: Sequence[PoolingWindow], keepdim: bool = True
) -> View:
    """A reduction of every window: `sum` or `max`."""
    whole = [
        w for w in over if w.count == 1 and w.size == w.length and not w.ahead and w.dilation == 1
    ]
    if len(whole) == len(over):
        return low.reduce(op, x, tuple(w.dim for w in over), keepdim, own=True)
    view = windows(low, x, over, -math.inf if op == "max" else 0.0)
    return low.reduce(
        op, view, tuple(range(len(x.shape), len(view.shape))), False, own=True, window=True
    )


def per_dim(value: Any, count: int, default: list[int]) -> list[int] | None:
    """An argument that is one number, a list of one, or one number per dimension."""
    if value is None or value == []:
        return default
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    values = values * count if len(values) == 1 else values
    return values if len(values) == count and all(type(v) is int for v in values) else None


def _described(
    node: Node, x: View, name: str, size: Any, stride: Any, padding: Any, dilation: Any
) -> list[PoolingWindow] | None:
    count = int(name.split("pool")[1][0])
    sizes = per_dim(size, count, [])
    if not sizes or node.shape is None:
        return None
    strides, pads, gaps = (
        per_dim(v, count, d)
        for v, d in ((stride, sizes), (padding, [0] * count), (dilation, [1] * count))
    )
    if strides is None or pads is None or gaps is None:
        return None
    first = len(x.shape) - count
    return [
        PoolingWindow(
            first + n,
            x.shape[first + n],
            node.shape[first + n],
            sizes[n],
            strides[n],
            pads[n],
            gaps[n],
        )
        for n in range(count)
    ]


@codegen_rule(RECIPE, "max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, size, stride, padding, dilation, _ceil = padded(args, None, None, None, None, None, False)
    if kwargs or node.dtype not in FLOATS:
        return None
    over = _described(node, x, node.op.split(".")[1], size, stride, padding, dilation)
    return (
        finish(low, node, reduced(low, "max", low.typed(x, register_type(x.dtype)), over))
        if over
        else None
    )


@codegen_rule(RECIPE, "avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, size, stride, padding, _ceil, whole, divisor = padded(
        args, None, None, None, None, False, True, None
    )
    if kwargs or node.dtype not in FLOATS:
        return None
    over = _described(node, x, node.op.split(".")[1], size, stride, padding, None)
    if not over:
        return None
    total = reduced(low, "sum", low.typed(x, register_type(x.dtype)), over)
    return finish(
        low,
        node,
        low.pointwise(
            "div", total, divisor if divisor is not None else _counts(low, total, over, bool(whole))
        ),
    )


def _counts(low: Lowering, total: View, over: Sequence[PoolingWindow], whole: bool) -> View | float:
    """Number of elements in each window's mean: a constant if all windows are alike."""
    fixed, varying = 1.0, []
    for w in over:
        ends = {w.ends(at, whole) for at in range(w.count)}
        if len(ends) == 1:
            fixed *= ends.pop()
        else:
            varying.append(w)
    value: View | float = fixed
    for w in varying:
        at = low.pointwise("iota", shape=total.shape, dim=w.dim, compute="int64")
        start = low.pointwise("sub", low.pointwise("mul", at, w.stride), w.ahead)
        end = low.pointwise("min", low.pointwise("add", start, w.size), w.length + w.ahead)
        if not whole:
            start, end = low.pointwise("max", start, 0), low.pointwise("min", end, w.length)
        value = low.pointwise(
            "mul", low.typed(low.pointwise("sub", end, start), total.dtype), value
        )
    return value


@codegen_rule(RECIPE, "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive_avg_pool(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    over = _equal(args[0], node.op.split(".")[1], args[1])
    if over is None or node.dtype not in FLOATS:
        return None
    total = reduced(low, "sum", low.typed(args[0], register_type(args[0].dtype)), over)
    return finish(low, node, low.pointwise("div", total, float(math.prod(w.size for w in over))))


@codegen_rule(RECIPE, "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[View, ...] | None:
    x = args[0]
    over = _equal(x, node.op.split(".")[1], args[1])
    if over is None or x.dtype not in FLOATS or low.read_parts.get(node.name) != {0}:
        return None
    return (low.typed(reduced(low, "max", low.typed(x, register_type(x.dtype)), over), x.dtype),)


def _equal(x: View, name: str, counts: Any) -> list[PoolingWindow] | None:
    """Adaptive windows that are all alike: the number of outputs divides the input."""
    dims = int(name.split("pool")[1][0])
    values = per_dim(counts, dims, [])
    first = len(x.shape) - dims
    if not values or any(n < 1 or x.shape[first + d] % n for d, n in enumerate(values)):
        return None
    return [
        PoolingWindow(
            first + d, x.shape[first + d], n, x.shape[first + d] // n, x.shape[first + d] // n
        )
        for d, n in enumerate(values)
    ]


@codegen_rule(RECIPE, "pad", "constant_pad_nd")
def _pad(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if "constant" in node.op:
        args = [args[0], args[1], "constant", args[2] if len(args) > 2 else 0]
    x, amounts, mode, fill = padded(args, None, None, "constant", None)
    fill = kwargs.get("value", fill)
    fill = 0 if fill is None else fill
    if (
        kwargs.get("mode", mode) != "constant"
        or not is_number(fill)
        or not all(type(n) is int for n in amounts)
    ):
        return None
    if x.dtype not in FLOATS and isinstance(fill, float) and fill != int(fill):
        return None
    ahead, behind = [0] * len(x.shape), [0] * len(x.shape)
    for n in range(len(amounts) // 2):
        dim = len(x.shape) - 1 - n
        ahead[dim], behind[dim] = (max(v, 0) for v in amounts[2 * n : 2 * n + 2])
        cut = [min(v, 0) for v in amounts[2 * n : 2 * n + 2]]
        if any(cut):
            x = x.then(
                "slice",
                (dim, -cut[0], 1),
                (*x.shape[:dim], x.shape[dim] + sum(cut), *x.shape[dim + 1 :]),
            )
    value = bounded(low, x, ahead, behind, fill)
    if value.steps or value is x:
        value = low.pointwise("as", value, dtype=value.dtype, compute=register_type(value.dtype))
    return finish(low, node, value)
