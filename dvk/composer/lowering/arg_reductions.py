"""Lowering rules for reductions that return indices: argmax, argmin, and the indices of `max(dim)` and `min(dim)`.

A value and its index become one 64-bit integer: the upper half is the value as an integer with the same order; the lower half is the
distance of the index from the last one. The maximum is the first index of the largest value, as in torch; NaN, ordered above all values,
wins. Every way to reduce a row therefore works, and one reduction gives both value and index.

Not covered: 64-bit values, which leave no room for the index.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.nodes import FLOATS, View
from dvk.composer.lowering.dispatch import Lowering, codegen_rule
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node

RECIPE = "own_arg_reductions"
NARROW = ("float32", "float16", "bfloat16", "int32", "int16", "int8", "uint8", "bool")
"""Types whose values have a 32-bit order."""
WORD = 1 << 32


def orderable_bits(low: Lowering, x: View, smallest: bool) -> View:
    """Every value as the upper half of an int64 with the same order, reversed if `smallest`."""
    if x.dtype in FLOATS:
        value = low.rounded_as_stored(x)
        value = low.pointwise("neg", value, compute="float32") if smallest else value
        order = low.pointwise("order", value, dtype="int64", compute="float32")
    else:
        order = low.typed(x, "int64")
        order = low.pointwise("neg", order) if smallest else order
    return low.pointwise("mul", order, WORD)


def pack_key(low: Lowering, x: View, dim: int | None, smallest: bool) -> View:
    """Value and index along `dim` (in the flattened tensor: None) of every element as one int64; the first is the largest."""
    position = low.pointwise("iota", shape=x.shape, dim=dim, compute="int64")
    return low.pointwise(
        "add", orderable_bits(low, x, smallest), low.pointwise("sub", WORD - 1, position)
    )


def position_of(low: Lowering, best: View) -> View:
    """The index of a reduced value."""
    return low.pointwise("sub", WORD - 1, low.pointwise("low", best))


def value_of(low: Lowering, best: View, dtype: str, smallest: bool) -> View:
    """The value of a packed reduction."""
    order = low.pointwise("high", best)
    if dtype in FLOATS:
        order = low.pointwise("unorder", order, dtype="float32", compute="int64")
    order = low.pointwise("neg", order) if smallest else order
    return low.typed(order, dtype)


@codegen_rule(RECIPE, "argmax", "argmin")
def _arg(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if x.dtype not in NARROW or not x.shape:
        return None
    dim = None if dim is None else dim % len(x.shape)
    best = low.reduce(
        "max",
        pack_key(low, x, dim, "argmin" in node.op),
        () if dim is None else (dim,),
        False,
        own=True,
    )
    shape = tuple(node.shape or ())
    return finish(low, node, position_of(low, best).then("reshape", shape, shape))


@codegen_rule(RECIPE, "max", "min")
def _with_positions(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[View, ...] | None:
    if node.op not in ("aten.max.dim", "aten.min.dim"):
        return None
    x, dim = args[0], args[1]
    keepdim = bool(kwargs.get("keepdim", args[2] if len(args) > 2 else False))
    if x.dtype not in NARROW or not x.shape:
        return None
    smallest = "min" in node.op
    best = low.reduce(
        "max", pack_key(low, x, dim % len(x.shape), smallest), (dim,), keepdim, own=True
    )
    return value_of(low, best, x.dtype, smallest), position_of(low, best)
