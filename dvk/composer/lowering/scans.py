"""Lowering rules for scans: cumulative sums, products, maxima and minima, and flips around them.

A flip is an affine view. A flipped scan is the scan of the flipped operand from the other end, so that flip, cumsum and flip become one
scan from the row's end. An exclusive scan is an inclusive one minus its own element, as graphs write it. Indices of cumulative extremes are
packed as in `arg_reductions`, except that the last of equal ones counts.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.nodes import FLOATS, View, register_type
from dvk.composer.lowering import indexing
from dvk.composer.lowering.arg_reductions import NARROW, orderable_bits, value_of
from dvk.composer.lowering.dispatch import Lowering, codegen_rule
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node

RECIPE = "own_scans"
CUMULATIVE = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}


@codegen_rule(RECIPE, "cumsum", "cumprod")
def _cumulative(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    if not x.shape or type(dim) is not int or node.dtype not in (*FLOATS, "int64"):
        return None
    kind = (
        "int64"
        if node.dtype == "int64"
        else "float64"
        if "float64" in (x.dtype, node.dtype)
        else "float32"
    )
    if kind == "int64" and x.dtype in FLOATS:
        return None
    return finish(
        low,
        node,
        low.scan(CUMULATIVE[node.op.split(".")[1]], low.typed(x, kind), dim % len(x.shape)),
    )


@codegen_rule(RECIPE, "cummax", "cummin")
def _extremes(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[View, ...] | None:
    x, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    if (
        not x.shape
        or type(dim) is not int
        or x.dtype not in (NARROW if low.read_parts.get(node.name) != {0} else (*NARROW, "float64"))
    ):
        return None
    dim %= len(x.shape)
    smallest = "min" in node.op
    if low.read_parts.get(node.name) == {0} and x.dtype in FLOATS:
        wide = low.typed(x, "float64" if x.dtype == "float64" else "float32")
        view = low.scan("max", low.pointwise("neg", wide) if smallest else wide, dim)
        return (low.typed(low.pointwise("neg", view) if smallest else view, x.dtype),)
    position = low.pointwise("iota", shape=x.shape, dim=dim, compute="int64")
    best = low.scan("max", low.pointwise("add", orderable_bits(low, x, smallest), position), dim)
    return value_of(low, best, x.dtype, smallest), low.pointwise("low", best)


@codegen_rule(RECIPE, "flip")
def _flip(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if not any(
        n.op.startswith("aten.") and n.op.split(".")[1] in CUMULATIVE for n in low.nodes.values()
    ):
        return None
    x = args[0]
    dims = tuple(sorted(d % len(x.shape) for d in args[1])) if x.shape else ()
    if not dims:
        return None
    return finish(
        low,
        node,
        low.pointwise(
            "as", x.then("flip", dims, x.shape), dtype=x.dtype, compute=register_type(x.dtype)
        ),
    )


@codegen_rule(indexing.RECIPE, "flip")
def _turned(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    dims = {d % len(x.shape) for d in args[1]} if x.shape else set()
    if not dims:
        return None
    at: list[int | View] = [
        low.pointwise("sub", x.shape[d] - 1, indexing.place_of(low, d, x.shape)) if d in dims else d
        for d in range(len(x.shape))
    ]
    return finish(low, node, indexing.gathered(low, x, at, x.shape, sure=True))
