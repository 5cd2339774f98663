"""Lowering rules for reads at computed indices: embedding, index_select, gather, and indexing by tensors of integers.

A `gather` value reads its first operand, which is in memory, at the indices of its other operands. Its index has for each dimension of the
first operand either a dimension of the result or a stand-in, a loop variable that no loop has: views and memory layout then work as for any
index, and the kernel substitutes the computed index for the stand-in.

PyTorch raises for an invalid index; a kernel cannot. It reads no memory there: the value is NaN, or 0 for a type without NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dvk.composer.ir.nodes import INTS, View, broadcast_shapes, register_type
from dvk.composer.lowering import sinking
from dvk.composer.lowering.dispatch import Lowering, codegen_rule, padded
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node

RECIPE = "own_gathers"


def gathered(
    low: Lowering, x: View, at: Sequence[int | View], shape: tuple[int, ...], sure: bool = False
) -> View:
    """A value of `shape` read from `x`.

    Args:
        at: for each dimension of `x` the corresponding dimension of the result, or the index, broadcast to `shape`.
        sure: every index is valid for all inputs; indices then are int32.
    """
    made = sinking.sunk(low, x, at, shape, sure)
    return made if made is not None else sinking.read(low, x, at, shape, sure)


def from_the_end(low: Lowering, place: View, size: int) -> View:
    """An index in which negative numbers count from the end."""
    place = low.typed(place, "int64")
    return low.pointwise(
        "where",
        low.pointwise("lt", place, 0),
        low.pointwise("add", place, size),
        place,
        compute="int64",
    )


def _is_place(value: Any) -> bool:
    return isinstance(value, View) and value.dtype in INTS


@codegen_rule(RECIPE, "embedding")
def _embedding(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    table, place = args[:2]
    if not _is_place(place):
        return None
    shape = (*place.shape, table.shape[1])
    return finish(
        low,
        node,
        gathered(low, table, (_reshaped(place, (*place.shape, 1)), len(place.shape)), shape),
    )


@codegen_rule(RECIPE, "index_select")
def _index_select(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    x, dim, place = args
    rank = len(x.shape)
    if not rank or not _is_place(place) or node.shape is None:
        return None
    dim %= rank
    column = _reshaped(place, (node.shape[dim], *(1 for _ in range(rank - dim - 1))))
    return finish(
        low,
        node,
        gathered(low, x, [column if d == dim else d for d in range(rank)], tuple(node.shape)),
    )


@codegen_rule(RECIPE, "gather", "take_along_dim")
def _gather(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    along = "take_along" in node.op
    x, dim, place = (args[0], padded(args, None, None, None)[2], args[1]) if along else args[:3]
    if (
        not _is_place(place)
        or not isinstance(dim, int)
        or len(x.shape) != len(place.shape)
        or not x.shape
    ):
        return None
    dim %= len(x.shape)
    if along:
        if any(
            a != b and d != dim for d, (a, b) in enumerate(zip(x.shape, place.shape, strict=True))
        ):
            return None
        place = from_the_end(low, place, x.shape[dim])
    return finish(
        low,
        node,
        gathered(low, x, [place if d == dim else d for d in range(len(x.shape))], place.shape),
    )


@codegen_rule(RECIPE, "index", "_unsafe_index")
def _index(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, asked = args
    if (one := number_at(low.nodes, node)) is not None and -x.shape[one[0]] <= one[1]:
        dim, start = one
        line = x.then("slice", (dim, start % x.shape[dim], 1), tuple(node.shape or ()))
        kind = register_type(x.dtype)
        return finish(low, node, low.pointwise("as", line, dtype=x.dtype, compute=kind, own=True))
    dims = [d for d, place in enumerate(asked) if place is not None]
    if (
        not dims
        or not all(_is_place(asked[d]) for d in dims)
        or dims[-1] - dims[0] + 1 != len(dims)
    ):
        return None
    among = broadcast_shapes(*(asked[d].shape for d in dims))
    ahead, behind = x.shape[: dims[0]], x.shape[dims[-1] + 1 :]
    shape = (*ahead, *among, *behind)
    if shape != node.shape:
        return None
    sure = "_unsafe_index" in node.op
    at: list[int | View] = []
    for d in range(len(x.shape)):
        if d not in dims:
            at.append(d if d < dims[0] else d - len(dims) + len(among))
        elif (counted := _counted(asked[d], x.shape[d])) is not None:
            at.append(dims[0] + len(among) - counted)
        else:
            place = _reshaped(asked[d], (*asked[d].shape, *(1 for _ in behind)))
            at.append(place if sure else from_the_end(low, place, x.shape[d]))
    return finish(low, node, gathered(low, x, at, shape, sure))


def number_at(nodes: Mapping[str, Node], node: Node) -> tuple[int, int] | None:
    """The dimension and the place that `x[:, [-1]]` reads: one dimension is indexed, by one number in the program's text."""
    if node.op != "aten.index.Tensor":
        return None
    dims = [d for d, place in enumerate(node.args[1]) if place is not None]
    source = nodes[node.args[1][dims[0]]["ref"]]
    while source.op in ("aten.lift_fresh_copy.default", "aten.lift_fresh.default"):
        source = nodes[source.args[0]["ref"]]
    data = source.kwargs.get("data")
    if len(dims) > 1 or source.op != "const" or source.shape != (1,) or not isinstance(data, list):
        return None
    size = (nodes[node.args[0]["ref"]].shape or ())[dims[0]]
    return (dims[0], data[0]) if type(data[0]) is int and data[0] < size else None


def _counted(place: View, size: int) -> int | None:
    """Where an index counts 0, 1, … `size` - 1 along one dimension and is nothing else: that dimension, from the end."""
    base = place.base
    while base.op == "as" and base.dtype in INTS:
        (source,) = base.operands
        if not isinstance(source, View) or not _is_bare(source):
            return None
        base = source.base
    wide = [d for d, n in enumerate(place.shape) if n != 1]
    if base.op != "iota" or base.shape != (size,) or len(wide) != 1 or not _is_bare(place, True):
        return None
    return len(place.shape) - wide[0]


def _is_bare(view: View, reshaped: bool = False) -> bool:
    return all(reshaped and step.method == "reshape" for step in view.steps)


def _reshaped(view: View, shape: tuple[int, ...]) -> View:
    return view.then("reshape", shape, shape)


def place_of(low: Lowering, dim: int, shape: tuple[int, ...], dtype: str = "int32") -> View:
    """The index along `dim` of each element of a value of `shape`."""
    return low.pointwise(
        "as",
        low.pointwise("iota", shape=shape, dim=dim, compute="int64"),
        dtype=dtype,
        compute=dtype,
    )
