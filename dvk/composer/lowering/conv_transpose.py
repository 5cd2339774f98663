"""Lowering rules for transposed convolutions: one ordinary convolution per phase of the stride, with interleaved results.

Output p of one dimension reads input i at place k of the window if i·stride + k·dilation − padding = p. For p = stride·q + r, only every
stride-th place has such an input. If padding is a multiple of the stride, these are the places k = r + stride·j, and the input is i = q +
padding/stride − j. If half a stride is left over, with r split into two parts h, f, so do k = stride/2·(1 − h) + f + stride·j and i = q +
padding//stride + h − j. So every multiplication contributes (except for windows that are not a multiple of the stride: their weight is
padded with zeros), and all indices are affine: windows of x over j, the weight reshaped and read backwards.

Other padding, and dilation together with a stride, stay with the library. Types and padding are as in `convolution`. A non-finite input
gives NaN where it meets a padded weight: windows that are not a multiple of the stride have a separate recipe, which is off by default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dvk.composer.ir.nodes import FLOATS, View, register_type
from dvk.composer.lowering.convolution import TRANSPOSED, TRANSPOSED_FINITE
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, padded
from dvk.composer.lowering.pointwise import finish
from dvk.composer.lowering.pooling import PoolingWindow, bounded, per_dim, windows
from dvk.records import Node


@dataclass(frozen=True)
class ConvTransposePhases:
    """One dimension of the output: position (q·halves + h)·fine + f uses places j of `places`."""

    window: PoolingWindow
    """Window of x: its outputs are q + h, its elements the places, last first."""
    count: int
    """Number of values of q."""
    halves: int
    fine: int
    length: int
    """Size of the output."""

    @property
    def places(self) -> int:
        return self.window.size

    @property
    def stride(self) -> int:
        return self.halves * self.fine


def phases(
    dim: int, length: int, out: int, size: int, stride: int, padding: int, dilation: int
) -> ConvTransposePhases | None:
    """Decompose one dimension; None if its indices are not affine.

    Args:
        dim: dimension of x, with `length` elements.
        out: elements of the output.
        size: places of the window.
    """
    if stride > 1 and dilation > 1 and size > 1:
        return None
    gap = dilation if stride == 1 else 1
    places, count = -(-size // stride), -(-out // stride)
    halves = 1 if padding % stride == 0 else 2
    ahead = gap * (places - 1) - padding // stride
    if 2 * padding % stride or ahead < 0:
        return None
    window = PoolingWindow(dim, length, count + halves - 1, places, 1, ahead, gap)
    return ConvTransposePhases(window, count, halves, stride // halves, out)


OPERATORS = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


@codegen_rule(TRANSPOSED, *OPERATORS)
def _exact(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    return _transposed(low, node, args, kwargs, exact=True)


@codegen_rule(TRANSPOSED_FINITE, *OPERATORS)
def _finite(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    return _transposed(low, node, args, kwargs, exact=False)


def _transposed(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any], exact: bool
) -> View | None:
    """The convolution if no weight is padded (`exact`), or if one is."""
    x, weight, bias, stride, padding, _more, groups, dilation = padded(
        args, None, None, None, 1, 0, 0, 1, 1
    )
    if kwargs or x.dtype not in FLOATS or weight.dtype != x.dtype or node.shape is None:
        return None
    count = len(weight.shape) - 2
    strides, ahead, gaps = (per_dim(value, count, []) for value in (stride, padding, dilation))
    if not strides or not ahead or not gaps:
        return None
    if exact is any(size % step for size, step in zip(weight.shape[2:], strides, strict=True)):
        return None
    first = len(x.shape) - count
    found = [
        phases(*each)
        for each in zip(
            range(first, len(x.shape)),
            x.shape[first:],
            node.shape[first:],
            weight.shape[2:],
            strides,
            ahead,
            gaps,
            strict=True,
        )
    ]
    over = [each for each in found if each is not None]
    if len(over) != count or not low.assume_finite(
        node.args[1], (n for each in over for n in (each.window.ahead, each.window.behind))
    ):
        return None
    return finish(low, node, lowered(low, x, weight, bias, over, groups))


def lowered(
    low: Lowering,
    x: View,
    weight: View,
    bias: View | None,
    over: Sequence[ConvTransposePhases],
    groups: int,
) -> View:
    """The transposed convolution in the register type, with bias.

    Args:
        x: [N?, groups·c, *sizes].
        weight: [groups·c, o, *window].
    """
    kind, many = register_type(x.dtype), x.shape[: -1 - len(over)]
    channels, outputs = x.shape[len(many)] // groups, weight.shape[1]
    sizes = {
        "g": groups,
        "c": channels,
        "o": outputs,
        **{f"n{d}": size for d, size in enumerate(many)},
    }
    for d, each in enumerate(over):
        sizes |= {
            f"q{d}": each.count,
            f"h{d}": each.halves,
            f"f{d}": each.fine,
            f"j{d}": each.places,
        }
    dims = range(len(over))
    lead, summed = [f"n{d}" for d in range(len(many))], ["c", *(f"j{d}" for d in dims)]
    kept = [*lead, "g", "o", *(name for d in dims for name in (f"q{d}", f"h{d}", f"f{d}"))]
    # Drop dimensions of one element, so that slices of the result are slices of the sum.
    order = [name for name in kept if sizes[name] > 1] + summed
    left = _spread(
        _inputs(low, x, over),
        [*lead, "g", "c", *(f"q{d}" for d in dims), *summed[1:], *(f"h{d}" for d in dims)],
        order,
        sizes,
    )
    parts = [name for d in dims for name in (f"j{d}", f"h{d}", f"f{d}")]
    right = _spread(_weights(low, weight, over), ["g", "c", "o", *parts], order, sizes)
    marks: dict[str, Any] = {"own": True}
    if math.prod(sizes[name] for name in summed) > 1:
        marks |= _contraction(low, x, over, depthwise=channels == 1 < groups)
    times = low.pointwise("mul", left, right, dtype=kind, compute=kind, **marks)
    rank = len(order)
    value = low.reduce("sum", times, tuple(range(rank - len(summed), rank)), False, **marks)
    shape = (*many, groups * outputs, *(each.count * each.stride for each in over))
    value = value.then("reshape", shape, shape)
    across = (groups * outputs, *(1 for _ in over))
    added = (
        low.pointwise("add", value, bias.then("reshape", across, across), compute=kind)
        if bias is not None
        else None
    )
    if all(each.length == each.count * each.stride for each in over):
        return added or value
    whole = added or low.pointwise("as", value, dtype=kind, compute=kind)
    return _cut(low, whole, over, len(many) + 1)


def _contraction(
    low: Lowering, x: View, over: Sequence[ConvTransposePhases], depthwise: bool
) -> dict[str, Any]:
    """Marks of the sum: its kernel family, and how its places follow each other."""
    family = (
        {"window": True}
        if depthwise
        else {"product": True, "tf32": low.tf32 and x.dtype == "float32"}
    )
    return {
        "contracted": tuple((1, each.window.dilation) for each in over),
        "phased": any(each.stride > 1 for each in over),
        **family,
    }


def _cut(low: Lowering, value: View, over: Sequence[ConvTransposePhases], first: int) -> View:
    """Cut off the elements beyond the end from a stored whole: a slice could not be attributed to its phases."""
    low.kept_whole.add(value.base)
    shape = value.shape
    for dim, each in enumerate(over, first):
        shape = (*shape[:dim], each.length, *shape[dim + 1 :])
        value = value.then("slice", (dim, 0, 1), shape)
    return low.pointwise("as", value, dtype=value.dtype, compute=value.dtype)


def _inputs(low: Lowering, x: View, over: Sequence[ConvTransposePhases]) -> View:
    """x as [N?, groups·c, *q, *j, *h]; j counts places from the last."""
    view = windows(low, x, [each.window for each in over], 0.0)
    after = list(view.shape)
    for each in over:
        after[each.window.dim] = each.count
    steps = tuple((each.window.dim, each.halves, 1, 1) for each in over)
    return view.then("windows", steps, (*after, *(each.halves for each in over)))


def _weights(low: Lowering, weight: View, over: Sequence[ConvTransposePhases]) -> View:
    """The weight as [groups·c, o, j, h, f, j, h, f, …], from the last place to the first."""
    behind = [
        0,
        0,
        *(
            each.places * each.stride - size
            for each, size in zip(over, weight.shape[2:], strict=True)
        ),
    ]
    view = bounded(low, weight, [0] * len(behind), behind, 0.0)
    shape = (
        *weight.shape[:2],
        *(size for each in over for size in (each.places, each.halves, each.fine)),
    )
    turned = tuple(
        2 + 3 * d + part
        for d, each in enumerate(over)
        for part, size in ((0, each.places), (1, each.halves))
        if size > 1
    )
    view = view.then("reshape", shape, shape)
    return view.then("flip", turned, shape) if turned else view


def _spread(view: View, names: Sequence[str], order: Sequence[str], sizes: dict[str, int]) -> View:
    """A view whose named dimensions (neighbours may be merged in it) are reordered; missing ones have one element."""
    shape = tuple(sizes[name] for name in names)
    view = view.then("reshape", shape, shape)
    placed = list(dict.fromkeys(names.index(name) for name in (*order, *names) if name in names))
    view = view.then("permute", tuple(placed), tuple(shape[d] for d in placed))
    after = tuple(sizes[name] if name in names else 1 for name in order)
    return view.then("reshape", after, after)
