"""Lowering rules for tensors made in forward() by index or from a number: triangles, constants, ranges."""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.nodes import FLOATS, View, register_type
from dvk.composer.lowering.dispatch import Lowering, is_number, rule
from dvk.composer.lowering.pointwise import converted, finish
from dvk.records import Node


@rule("tril", "triu")
def _triangle(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x = args[0]
    diagonal = args[1] if len(args) > 1 else kwargs.get("diagonal", 0)
    rank = len(x.shape)
    row = low.pointwise("iota", shape=x.shape, dim=rank - 2, compute="int64")
    column = low.pointwise("iota", shape=x.shape, dim=rank - 1, compute="int64")
    offset = low.pointwise("sub", column, row)
    keep = low.pointwise("le" if "tril" in node.op else "ge", offset, diagonal)
    return finish(low, node, low.pointwise("where", keep, x, 0, compute=register_type(x.dtype)))


@rule(
    "zeros",
    "ones",
    "full",
    "zeros_like",
    "ones_like",
    "full_like",
    "scalar_tensor",
    "new_zeros",
    "new_ones",
    "new_full",
    "fill",
)
def _filled(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name = node.op.split(".")[1]
    if node.dtype is None or node.dtype not in (*FLOATS, "bool", "int64", "int32"):
        return None
    value = (
        0 if "zeros" in name else 1 if "ones" in name else args[0] if "scalar" in name else args[-1]
    )
    if not is_number(value):
        return None
    value = converted(low, value, node.dtype)
    return low.pointwise(
        "as",
        value,
        shape=tuple(node.shape or ()),
        dtype=node.dtype,
        compute=register_type(node.dtype),
    )


@rule("arange")
def _arange(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    if node.dtype not in ("int64", "int32", "float32") or not all(
        isinstance(v, int) for v in (start, step)
    ):
        return None
    count = low.pointwise("iota", shape=tuple(node.shape or ()), dim=0, compute="int64")
    scaled = count if step == 1 else low.pointwise("mul", count, step)
    return finish(low, node, scaled if start == 0 else low.pointwise("add", scaled, start))
