"""Lowering rules for sums at many computed places: `index_add`, `scatter_add`, `scatter_reduce`, `index_put` with accumulation.

A `scatter` value has the shape of what is added; its memory has the shape of the result and holds zeros before. Each element is added at
its place by an atomic operation, in the kernel that computes it: a message of a graph network is gathered, computed and added in one pass
and never written. PyTorch's own kernels for a GPU add atomically, too, so neither fixes the order of a sum. float16 and bfloat16 are added
up in float32.

PyTorch raises for an invalid index; a kernel cannot. Its value then is NaN and added at the first place, or 0 for a type without NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.nodes import (
    FLOATS,
    INTS,
    IRNode,
    Operand,
    View,
    broadcast_shapes,
    register_type,
)
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, is_number
from dvk.composer.lowering.indexing import from_the_end
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node

RECIPE = "own_scatters"
SCATTERED = "scattered"
"""The call that stands for the memory to which a kernel has added."""
ADDED = ("float32", "float64", "int32", "int64")
"""Types with an atomic addition."""
Way = int | View
"""For a dimension of the result, the dimension of what is added, or the index, which broadcasts to what is added."""


def added(
    low: Lowering, node: Node, value: Operand, at: Sequence[Way], shape: tuple[int, ...], kind: str
) -> View | None:
    """Zeros of the result's shape, and the elements of a value of `shape` added to them.

    Args:
        node: the operator whose result it is.
        kind: type of the values; those of 16 bits are added up in float32.
    """
    kind = register_type(kind)
    into = tuple(node.shape or ())
    if kind not in ADDED or 0 in shape or 0 in into:
        return None
    places = [low.typed(place, "int64") for place in at if isinstance(place, View)]
    value = low.typed(value, kind) if isinstance(value, View) else value
    ways = tuple(None if isinstance(place, View) else place for place in at)
    scatter = low.pointwise(
        "scatter",
        value,
        *places,
        shape=shape,
        dtype=kind,
        compute=kind,
        at=ways,
        into=into,
        own=True,
    )
    held = node.model_copy(update={"dtype": kind, "strides": contiguous_strides(into)})
    sums = IRNode("extern", SCATTERED, into, kind, (scatter,), {"checked": True}, held)
    low.order.append(sums)
    return View(sums)


def _onto(low: Lowering, node: Node, x: View, sums: View | None) -> View | None:
    """The sums, with the elements that were there before."""
    if sums is None or node.dtype is None:
        return None
    if not _is_zero(x):
        sums = low.pointwise("add", x, sums, dtype=node.dtype)
    if sums.base.op == SCATTERED and node.strides not in (None, sums.base.node.strides):  # type: ignore[union-attr]
        sums = low.pointwise("as", sums, dtype=sums.dtype, compute=register_type(sums.dtype))
    return finish(low, node, sums)


def _is_zero(value: Operand) -> bool:
    """A tensor of zeros that was made in forward()."""
    if not isinstance(value, View):
        return value == 0
    base = value.base
    return base.kind == "pw" and base.op in ("as", "cast") and _is_zero(base.operands[0])


def _narrow(place: View) -> View:
    """An index without its repetitions along other dimensions: it is read once for all of them."""
    while place.steps and place.steps[-1].method == "expand":
        step = place.steps[-1]
        if len(step.before) != len(step.after):
            break
        place = View(place.base, place.steps[:-1])
    return place


@codegen_rule(RECIPE, "index_add")
def _index_add(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim, index, value = args
    alpha = kwargs.get("alpha", 1)
    if not x.shape or len(index.shape) != 1 or index.dtype not in INTS or not is_number(alpha):
        return None
    dim %= len(x.shape)
    column = (index.shape[0], *(1 for _ in x.shape[dim + 1 :]))
    at: list[Way] = list(range(len(x.shape)))
    at[dim] = index.then("reshape", column, column)
    if alpha != 1:
        value = low.pointwise("mul", value, alpha, dtype=value.dtype)
    return _onto(low, node, x, added(low, node, value, at, value.shape, x.dtype))


def _sources(
    x: View, dim: int, index: View, value: Any
) -> tuple[Operand, list[Way], tuple[int, ...]] | None:
    """What `scatter_add` and `scatter_reduce` add, and where."""
    if not x.shape or len(index.shape) != len(x.shape) or index.dtype not in INTS:
        return None
    dim %= len(x.shape)
    at: list[Way] = list(range(len(x.shape)))
    at[dim] = _narrow(index)
    if isinstance(value, View):
        if len(value.shape) != len(index.shape):
            return None
        for d, size in enumerate(index.shape):
            if value.shape[d] != size:
                shape = (*value.shape[:d], size, *value.shape[d + 1 :])
                value = value.then("slice", (d, 0, 1), shape)
    elif not is_number(value):
        return None
    return value, at, index.shape


@codegen_rule(RECIPE, "scatter_add")
def _scatter_add(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim, index, value = args
    found = _sources(x, dim, index, value)
    if found is None or kwargs:
        return None
    return _onto(low, node, x, added(low, node, *found, x.dtype))


@codegen_rule(RECIPE, "scatter_reduce")
def _scatter_reduce(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    x, dim, index, value, how = args
    found = _sources(x, dim, index, value)
    counts = how == "mean" or not kwargs.get("include_self", True)
    if found is None or how not in ("sum", "mean") or (counts and x.dtype not in FLOATS):
        return None
    value, at, shape = found
    sums = added(low, node, value, at, shape, x.dtype)
    if sums is None or not counts:
        return _onto(low, node, x, sums)
    number = _counted(low, node, at, shape)
    if number is None:
        return None
    alone = low.pointwise("eq", number, 0.0)
    divisor: Operand = number
    if kwargs.get("include_self", True):
        sums = low.pointwise("add", x, sums)
        divisor = low.pointwise("add", number, 1.0)
    if how == "mean":
        sums = low.pointwise("div", sums, divisor)
    made = low.pointwise("where", alone, x, sums, dtype=node.dtype, compute=sums.dtype)
    return finish(low, node, made)


def _counted(low: Lowering, node: Node, at: Sequence[Way], shape: tuple[int, ...]) -> View | None:
    """How many elements are added at each place, of extent 1 along the dimensions in which places do not differ.

    Along these, the index covers the whole result: where it covers a part of it, nothing is added to the rest.
    """
    (dim,) = (d for d, way in enumerate(at) if isinstance(way, View))
    place = at[dim]
    assert isinstance(place, View)
    whole = tuple(node.shape or ())
    alike = [d != dim and place.shape[d] == 1 and n == whole[d] for d, n in enumerate(shape)]
    into = tuple(1 if same else n for same, n in zip(alike, whole, strict=True))
    part = tuple(1 if same else n for same, n in zip(alike, shape, strict=True))
    narrow = node.model_copy(update={"shape": into, "name": f"{node.name}_counts"})
    return added(low, narrow, 1.0, at, part, "float32")


@codegen_rule(RECIPE, "index_put")
def _index_put(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, asked, value = args[:3]
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    dims = [d for d, place in enumerate(asked) if place is not None]
    if (
        not accumulates
        or not dims
        or not all(isinstance(asked[d], View) and asked[d].dtype in INTS for d in dims)
        or dims[-1] - dims[0] + 1 != len(dims)
    ):
        return None
    among = broadcast_shapes(*(asked[d].shape for d in dims))
    ahead, behind = x.shape[: dims[0]], x.shape[dims[-1] + 1 :]
    at: list[Way] = []
    for d in range(len(x.shape)):
        if d in dims:
            column = (*asked[d].shape, *(1 for _ in behind))
            at.append(from_the_end(low, asked[d].then("reshape", column, column), x.shape[d]))
        else:
            at.append(d if d < dims[0] else d - len(dims) + len(among))
    return _onto(low, node, x, added(low, node, value, at, (*ahead, *among, *behind), x.dtype))


__all__ = ["RECIPE", "SCATTERED", "added"]
