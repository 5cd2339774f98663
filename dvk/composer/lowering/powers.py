"""Lowering rule for powers: multiplications for small integer exponents, else exp2 and log2 with the exceptions of pow.

The general form needs no further operation from renderers; its relative error grows with |y·log2 x|, to about 1e-5 in float32 at the ends
of the range.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.ir.nodes import FLOATS, Operand, View, register_type
from dvk.composer.lowering.dispatch import Lowering, rule
from dvk.composer.lowering.pointwise import converted, finish, operands
from dvk.records import Node


@rule("pow")
def _pow(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    values = operands(node, args, 2)
    if values is None or node.dtype not in FLOATS:
        return None
    base, power = (converted(low, v, node.dtype) for v in values)
    if not isinstance(power, View) and not math.isfinite(power):
        return None
    compute = register_type(node.dtype)
    if isinstance(base, View) and not isinstance(power, View):
        x = low.typed(base, compute)
        if power == 0:
            return low.pointwise("as", 1.0, shape=x.shape, dtype=node.dtype, compute=compute)
        if power in (0.5, -0.5):
            return finish(low, node, low.pointwise("sqrt" if power > 0 else "rsqrt", x))
        if power == int(power) and abs(power) <= 8:
            value = _whole_power(low, x, int(abs(power)))
            return finish(low, node, low.pointwise("reciprocal", value) if power < 0 else value)
    if any(v in (0, 1) for v in (base, power)) or (not isinstance(base, View) and not base > 0):
        return None
    return finish(low, node, _general_power(low, base, power, compute))


def _whole_power(low: Lowering, x: View, power: int) -> View:
    """x·x·…·x by repeated squaring."""
    if power == 1:
        return x
    half = _whole_power(low, x, power // 2)
    square = low.pointwise("mul", half, half)
    return low.pointwise("mul", square, x) if power % 2 else square


def _general_power(low: Lowering, x: Operand, y: Operand, compute: str) -> View:
    """|x|^y as exp2(y·log2|x|), with the sign and the exceptions of IEEE pow.

    A number for x is positive; a number for y is finite and not 0.
    """

    def pw(op: str, *values: Operand) -> View:
        return low.pointwise(op, *values, compute=compute)

    size = pw("abs", x) if isinstance(x, View) else x
    exponent = pw("mul", y, pw("log2", size) if isinstance(size, View) else math.log2(size))
    if isinstance(y, View):
        one = pw("eq", y, 0.0)
        if isinstance(size, View):
            one = low.pointwise("or", one, pw("eq", size, 1.0), compute="bool")
        exponent = pw("where", one, 0.0, exponent)
    value = pw("exp2", exponent)
    if not isinstance(x, View):
        return value
    infinite = pw("isinf", x)
    minus_zero = low.pointwise(
        "and", pw("eq", x, 0.0), pw("lt", pw("reciprocal", x), 0.0), compute="bool"
    )
    if isinstance(y, View):
        whole = pw("eq", pw("floor", y), y)
        odd = low.pointwise(
            "and",
            whole,
            pw("ne", pw("floor", pw("mul", y, 0.5)), pw("mul", y, 0.5)),
            compute="bool",
        )
        real = low.pointwise("or", whole, infinite, compute="bool")
        value = pw(
            "where", low.pointwise("and", odd, minus_zero, compute="bool"), pw("neg", value), value
        )
        below = pw("where", odd, pw("neg", value), pw("where", real, value, math.nan))
    elif y != int(y):
        below = pw("where", infinite, value, math.nan)
    else:
        value = pw("where", minus_zero, pw("neg", value), value) if y % 2 else value
        below = pw("neg", value) if y % 2 else value
    return pw("where", pw("lt", x, 0.0), below, value)
