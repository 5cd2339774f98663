"""Lowering rules for integers: bitwise operations, shifts, and division by a number other than 0 and −1.

Division by a tensor stays a call of PyTorch, which raises for a divisor of 0.
"""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.nodes import BYTES, INTS, Operand, View
from dvk.composer.lowering.dispatch import Lowering, rule
from dvk.composer.lowering.pointwise import finish, operands
from dvk.records import Node

_BITS = {"and": "band", "or": "bor", "xor": "bxor"}
_BOOLS = {"and": "and", "or": "or", "xor": "ne"}


@rule("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
def _bitwise(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name = node.op.split(".")[1].removeprefix("bitwise_").strip("_")
    if node.dtype == "bool":
        pair = operands(node, args, 2)
        return low.pointwise(_BOOLS[name], *pair, dtype="bool", compute="bool") if pair else None
    values = _of_type(low, node, args)
    return finish(low, node, low.pointwise(_BITS[name], *values)) if values else None


@rule("bitwise_not")
def _bitwise_not(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    values = operands(node, args, 1)
    if values is None or node.dtype not in (*INTS, "bool"):
        return None
    if node.dtype == "bool":
        return low.pointwise("not", *values, compute="bool")
    return finish(low, node, low.pointwise("bxor", *values, -1, compute=node.dtype))


@rule("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
def _shift(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    """A shift by a negative number or by more than all bits equals a shift by all bits: 0, or the sign."""
    values = _of_type(low, node, args)
    if values is None or not isinstance(values[0], View):
        return None
    x, by = values
    bits, left, dtype = (
        8 * BYTES[str(node.dtype)],
        "left" in node.op or "lshift" in node.op,
        node.dtype,
    )
    if not isinstance(by, View):
        inside = 0 <= by < bits
        if left or (not inside and dtype == "uint8"):
            return finish(
                low,
                node,
                low.pointwise("shl" if left else "shr", x, by)
                if inside
                else low.pointwise("mul", x, 0),
            )
        return finish(low, node, low.pointwise("shr", x, by if inside else bits - 1))
    outside = low.pointwise(
        "or", low.pointwise("lt", by, 0), low.pointwise("ge", by, bits), compute="bool"
    )
    sure = low.pointwise("where", outside, 0 if left else bits - 1, by, compute=dtype)
    value = low.pointwise("shl" if left else "shr", x, sure)
    return finish(
        low,
        node,
        low.pointwise("where", outside, 0, value, compute=dtype)
        if left or dtype == "uint8"
        else value,
    )


def _of_type(low: Lowering, node: Node, args: list[Any]) -> list[Operand] | None:
    """Two operands of the result's integer type; None for another type, or a number outside its range."""
    values = operands(node, args, 2)
    if values is None or node.dtype not in INTS or any(not _fits(v, node.dtype) for v in values):
        return None
    return [low.typed(v, node.dtype) if isinstance(v, View) else v for v in values]


def _fits(value: Operand, dtype: str) -> bool:
    bits = 8 * BYTES[dtype]
    least, most = (
        (0, (1 << bits) - 1) if dtype == "uint8" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    )
    return isinstance(value, View) or (isinstance(value, int) and least <= value <= most)


def _by_number(low: Lowering, node: Node, args: list[Any]) -> tuple[View, int] | None:
    values = _of_type(low, node, args)
    if (
        values is None
        or not isinstance(values[0], View)
        or isinstance(values[1], View)
        or values[1] in (0, -1)
    ):
        return None
    return values[0], int(values[1])


def modulo(low: Lowering, node: Node, args: list[Any]) -> View | None:
    """`fmod`, with the dividend's sign, or `remainder`, with the divisor's."""
    if (operands := _by_number(low, node, args)) is None:
        return None
    x, by = operands
    left = low.pointwise("irem", x, by)
    if "remainder" in node.op:
        left = low.pointwise(
            "where", _unlike(low, left, by), low.pointwise("add", left, by), left, compute=x.dtype
        )
    return finish(low, node, left)


def division(low: Lowering, node: Node, args: list[Any], mode: str) -> View | None:
    """Division rounded towards 0, or down."""
    if (operands := _by_number(low, node, args)) is None:
        return None
    x, by = operands
    value = low.pointwise("idiv", x, by)
    if mode == "floor":
        low_by_one = low.typed(_unlike(low, low.pointwise("irem", x, by), by), x.dtype)
        value = low.pointwise("sub", value, low_by_one)
    return finish(low, node, value)


def _unlike(low: Lowering, left: View, by: int) -> View:
    """The remainder is nonzero and its sign is not the divisor's."""
    return low.pointwise("lt", left, 0) if by > 0 else low.pointwise("gt", left, 0)
