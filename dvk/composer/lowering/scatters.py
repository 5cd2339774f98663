"""Lowering rules for writes at few places of each line: `scatter`, `scatter_add` and `index_fill` along one dimension, `one_hot`, and for a
number where a mask holds.

Every element of a line compares its own position with the place that is written, so the write is part of the kernel of its neighbours, and
no copy of the tensor goes through memory.

PyTorch raises for an invalid index; a kernel cannot. The line's first element then is NaN, or 0 for a type without NaN.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.loops import nowhere
from dvk.composer.ir.nodes import FLOATS, INTS, Operand, View, register_type
from dvk.composer.lowering.dispatch import Lowering, codegen_rule
from dvk.composer.lowering.indexing import RECIPE, from_the_end
from dvk.composer.lowering.pointwise import converted, finish
from dvk.records import Node

MAX_PLACES = 8
"""Places of a line that one number is written to: each costs every element a comparison."""


def written(
    low: Lowering, x: View, dim: int, places: list[View], value: Operand, adds: bool = False
) -> View:
    """`x` with `value` at `places` along `dim`.

    Args:
        places: indices broadcast to `x`'s shape, of extent 1 along `dim`.
        value: a number, or a value of that broadcast shape.
        adds: `value` is added to what is there.
    """
    line = tuple(n if d == dim else 1 for d, n in enumerate(x.shape))
    own = low.pointwise("iota", shape=line, dim=dim, compute="int64")
    compute = register_type(x.dtype)
    result = x
    for place in places:
        place = low.typed(place, "int64")
        valid = low.pointwise(
            "and",
            low.pointwise("ge", place, 0),
            low.pointwise("lt", place, x.shape[dim]),
            compute="bool",
        )
        there = low.pointwise("where", valid, place, 0, compute="int64")
        new: Operand = low.pointwise("add", result, value, dtype=x.dtype) if adds else value
        new = low.pointwise("where", valid, new, nowhere(compute), dtype=x.dtype, compute=compute)
        result = low.pointwise(
            "where",
            low.pointwise("eq", own, there, compute="int64"),
            new,
            result,
            shape=x.shape,
            dtype=x.dtype,
            compute=compute,
            own=True,
        )
    return result


def _fits(value: Any, dtype: str) -> bool:
    """A number that a tensor of this type holds, apart from rounding."""
    if dtype in FLOATS:
        return isinstance(value, (bool, int, float))
    return type(value) is bool or (dtype in INTS and type(value) is int and 0 <= value < 128)


@codegen_rule(RECIPE, "scatter", "scatter_add")
def _scatter(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim, index, value = args
    adds = "scatter_add" in node.op
    if not x.shape or not isinstance(index, View) or kwargs:
        return None  # `reduce=` is another operation
    dim %= len(x.shape)
    count = index.shape[dim]
    if any(a != b and d != dim for d, (a, b) in enumerate(zip(x.shape, index.shape, strict=True))):
        return None
    if isinstance(value, View) and value.shape:
        if value.dtype != x.dtype or count != 1:
            return None  # which of two values for one place remains is not defined
        for d, size in enumerate(index.shape):
            if value.shape[d] != size:
                shape = (*value.shape[:d], size, *value.shape[d + 1 :])
                value = value.then("slice", (d, 0, 1), shape)
    elif not _fits(value, x.dtype) or count > MAX_PLACES:
        return None
    else:
        value = converted(low, value, x.dtype)
    columns = [_column(index, dim, n) for n in range(count)]
    return finish(low, node, written(low, x, dim, columns, value, adds))


@codegen_rule(RECIPE, "index_fill")
def _index_fill(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim, index, value = args
    if not x.shape or len(index.shape) != 1 or index.shape[0] > MAX_PLACES:
        return None
    if not _fits(value, x.dtype):
        return None
    dim %= len(x.shape)
    ones = (1,) * len(x.shape)
    columns = [
        from_the_end(low, _column(index, 0, n).then("reshape", ones, ones), x.shape[dim])
        for n in range(index.shape[0])
    ]
    return finish(low, node, written(low, x, dim, columns, converted(low, value, x.dtype)))


@codegen_rule(RECIPE, "one_hot")
def _one_hot(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """On a GPU, where PyTorch asserts in a kernel; on a CPU its call raises before anything else runs."""
    index, classes = args[0], args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
    if low.device == "cpu" or type(classes) is not int or classes < 1 or index.dtype != "int64":
        return None
    shape = (*index.shape, classes)
    at = low.pointwise("iota", shape=(classes,), dim=0, compute="int64")
    column = (*index.shape, 1)
    hit = low.pointwise("eq", index.then("reshape", column, column), at, shape=shape, own=True)
    return finish(low, node, low.pointwise("as", hit, dtype="int64", compute="int64"))


@codegen_rule(RECIPE, "index_put")
def _masked(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """`x[mask] = number`."""
    x, places, value, *rest = args
    if len(places) != 1 or any(rest) or kwargs.get("accumulate"):
        return None
    (mask,) = places
    if mask is None or mask.dtype != "bool" or mask.shape != x.shape:
        return None
    if value.dtype != x.dtype or any(n != 1 for n in value.shape):
        return None
    number = value.then("reshape", (), ())
    kind = register_type(x.dtype)
    return finish(
        low, node, low.pointwise("where", mask, number, x, dtype=x.dtype, compute=kind, own=True)
    )


def _column(index: View, dim: int, at: int) -> View:
    """One place of each line, kept as a dimension of extent 1."""
    shape = (*index.shape[:dim], 1, *index.shape[dim + 1 :])
    return index.then("slice", (dim, at, 1), shape) if index.shape[dim] > 1 else index
