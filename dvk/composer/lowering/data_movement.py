"""Lowering rules for data movement: concatenation, repeats, shuffles of pixels or channels, patches.

A shuffle is a view of more dimensions, copied and read as fewer: the copy fuses with its prologue and epilogue. A concatenation pads each
part to the whole and selects by index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dvk.composer.ir.nodes import View, register_type
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, padded
from dvk.composer.lowering.indexing import place_of
from dvk.composer.lowering.pointwise import finish
from dvk.composer.lowering.pooling import PoolingWindow, bounded, per_dim, windows
from dvk.records import Node

RECIPE = "own_moves"
MAX_PARTS = 8
"""Parts of one concatenation: each costs every element a comparison."""


def copied(low: Lowering, node: Node, view: View) -> View:
    """The elements of a view as a value, in the operator's shape."""
    value = low.pointwise("as", view, dtype=view.dtype, compute=register_type(view.dtype), own=True)
    shape = tuple(node.shape or ())
    return finish(low, node, value.then("reshape", shape, shape))


def concatenate(low: Lowering, parts: Sequence[View], dim: int) -> View:
    """Concatenate parts of one type along `dim`."""
    total = sum(part.shape[dim] for part in parts)
    whole = (*parts[0].shape[:dim], total, *parts[0].shape[dim + 1 :])
    # Along the other dimensions the place is broadcast: a window of a whole index would be read from memory.
    place = place_of(low, dim, tuple(n if d == dim else 1 for d, n in enumerate(whole)))
    end, value = total, None
    for part in reversed(parts):
        ahead, behind = [0] * len(whole), [0] * len(whole)
        start = end - part.shape[dim]
        ahead[dim], behind[dim] = start, total - end
        there = bounded(low, part, ahead, behind, 0)
        value = (
            there
            if value is None
            else low.pointwise(
                "where",
                low.pointwise("lt", place, end),
                there,
                value,
                dtype=part.dtype,
                compute=register_type(part.dtype),
            )
        )
        end = start
    assert value is not None
    return value


@codegen_rule(RECIPE, "cat", "concat", "concatenate", "stack")
def _cat(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    parts, dim = padded(args, None, 0)
    if (
        not 1 < len(parts) <= MAX_PARTS
        or not all(isinstance(p, View) for p in parts)
        or {p.dtype for p in parts} != {node.dtype}
    ):
        return None
    rank = len(node.shape or ())
    dim = kwargs.get("dim", dim) % rank
    if "stack" in node.op:
        parts = [
            p.then("reshape", s, s) for p in parts for s in [(*p.shape[:dim], 1, *p.shape[dim:])]
        ]
    if any(len(p.shape) != rank or 0 in p.shape for p in parts):
        return None
    if not all(_is_reached(part, dim) for part in parts):
        return None
    return finish(low, node, concatenate(low, parts, dim))


def _is_reached(part: View, dim: int) -> bool:
    """Whether a place beyond the part along `dim` is one beyond a dimension in memory. Merged dimensions have none: PyTorch copies such
    parts as fast as a kernel, where padding them would copy them first."""
    for step in reversed(part.steps):
        if step.method in ("reshape", "expand") and step.after[dim] == 1:
            return True
        before = step.dim_before(dim)
        if before is None:
            return False
        dim = before
    return True


@codegen_rule(RECIPE, "repeat", "tile")
def _repeat(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, times = args
    rank = max(len(times), len(x.shape))
    times, sizes = (1,) * (rank - len(times)) + tuple(times), (1,) * (rank - len(x.shape)) + x.shape
    apart = tuple(n for size in sizes for n in (1, size))
    wide = tuple(n for pair in zip(times, sizes, strict=True) for n in pair)
    return (
        copied(low, node, x.then("reshape", apart, apart).then("expand", wide, wide))
        if 0 not in times
        else None
    )


@codegen_rule(RECIPE, "repeat_interleave")
def repeat_interleave(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    x, times, dim = padded(args, None, None, None)
    dim = kwargs.get("dim", dim)
    if not isinstance(times, int) or times < 1:
        return None
    if dim is None:
        x, dim = x.then("reshape", (math.prod(x.shape),), (math.prod(x.shape),)), 0
    dim %= len(x.shape)
    apart = (*x.shape[: dim + 1], 1, *x.shape[dim + 1 :])
    wide = (*x.shape[: dim + 1], times, *x.shape[dim + 1 :])
    return copied(low, node, x.then("reshape", apart, apart).then("expand", wide, wide))


@codegen_rule(
    RECIPE, "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"
)
def _shuffle(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, by = args
    if not isinstance(by, int) or len(x.shape) < 3:
        return None
    if "channel" in node.op:
        batch, channels, *rest = x.shape
        apart, order = (batch, by, channels // by, *rest), (0, 2, 1, *range(3, len(rest) + 3))
    else:
        *batch, channels, height, width = x.shape
        n = len(batch)
        if "unshuffle" in node.op:
            apart, order = (
                (*batch, channels, height // by, by, width // by, by),
                (*range(n), n, n + 2, n + 4, n + 1, n + 3),
            )
        else:
            apart, order = (
                (*batch, channels // by**2, by, by, height, width),
                (*range(n), n, n + 3, n + 1, n + 4, n + 2),
            )
    view = x.then("reshape", apart, apart)
    return copied(low, node, view.then("permute", order, tuple(apart[d] for d in order)))


@codegen_rule(RECIPE, "im2col")
def _patches(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, *described = args
    size, dilation, padding, stride = (per_dim(v, 2, []) for v in described)
    if len(x.shape) < 3 or not (size and dilation and padding and stride):
        return None
    first = len(x.shape) - 2
    counts = [
        (x.shape[first + n] + 2 * padding[n] - dilation[n] * (size[n] - 1) - 1) // stride[n] + 1
        for n in range(2)
    ]
    over = [
        PoolingWindow(
            first + n, x.shape[first + n], counts[n], size[n], stride[n], padding[n], dilation[n]
        )
        for n in range(2)
    ]
    view = windows(low, x, over, 0)
    order = (*range(first), first + 2, first + 3, first, first + 1)
    return copied(low, node, view.then("permute", order, tuple(view.shape[d] for d in order)))


@codegen_rule(RECIPE, "unfold")
def _unfold(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim, size, stride = args
    if not x.shape or stride < size:
        return None  # elements of several patches are better read than recomputed for each
    dim %= len(x.shape)
    return windows(
        low, x, [PoolingWindow(dim, x.shape[dim], (node.shape or ())[dim], size, stride)], 0
    )
