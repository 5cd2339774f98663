"""Lowering rules for reductions of booleans, and for sums that skip NaN.

`any` and `all` are sums of ones in single precision, which every back end adds fast: the sum may stop growing, but never returns to 0.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.nodes import BYTES, FLOATS, View
from dvk.composer.lowering.dispatch import Lowering, rule
from dvk.composer.lowering.pointwise import finish
from dvk.records import Node


def _along(args: list[Any], kwargs: dict[str, Any], rank: int) -> tuple[tuple[int, ...], bool]:
    given = kwargs.get("dim", args[1] if len(args) > 1 else None)
    dims = () if given is None else (given,) if isinstance(given, int) else tuple(given)
    return tuple(d % rank for d in dims), bool(
        kwargs.get("keepdim", args[2] if len(args) > 2 else False)
    )


def _nonzero(low: Lowering, x: View) -> View:
    return x if x.dtype == "bool" else low.pointwise("ne", x, 0)


@rule("any", "all")
def _any(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    if not isinstance(x, View) or not x.shape or x.dtype not in BYTES or node.dtype != "bool":
        return None
    every = ".all." in node.op
    holds = _nonzero(low, x)
    counted = low.typed(low.pointwise("not", holds, compute="bool") if every else holds, "float32")
    total = low.reduce("sum", counted, *_along(args, kwargs, len(x.shape)))
    return low.pointwise("eq" if every else "ne", total, 0.0)


@rule("count_nonzero")
def _count_nonzero(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    x = args[0]
    if not isinstance(x, View) or not x.shape or x.dtype not in BYTES:
        return None
    dims, _ = _along(args, kwargs, len(x.shape))
    return low.reduce("sum", low.typed(_nonzero(low, x), "int64"), dims, False)


@rule("nansum", "nanmean")
def _without_nan(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    if not isinstance(x, View) or not x.shape or x.dtype not in FLOATS or node.dtype not in FLOATS:
        return None
    dims, keepdim = _along(args, kwargs, len(x.shape))
    wide = low.typed(x, "float64" if "float64" in (x.dtype, node.dtype) else "float32")
    missing = low.pointwise("isnan", wide)
    total = low.reduce(
        "sum", low.pointwise("where", missing, 0.0, wide, compute=wide.dtype), dims, keepdim
    )
    if "mean" in node.op:
        there = low.typed(low.pointwise("not", missing, compute="bool"), "int64")
        total = low.pointwise(
            "div", total, low.typed(low.reduce("sum", there, dims, keepdim), wide.dtype)
        )
    return finish(low, node, total)
