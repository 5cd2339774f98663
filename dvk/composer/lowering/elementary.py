"""Lowering rules for real functions of two values, for rounding division, and for composite functions.

Rounding division follows PyTorch's own definition from the exact remainder of `fmod`: rounding a rounded quotient would be off by one near
integers. In double precision these operators stay calls: Triton has no exact `fmod` there.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.ir.nodes import FLOATS, HALVES, INTS, Operand, View, register_type, rounded
from dvk.composer.lowering import integers
from dvk.composer.lowering.dispatch import Lowering, rule
from dvk.composer.lowering.pointwise import binary, compute_type, converted, finish, operands
from dvk.records import Node


def real(low: Lowering, node: Node, args: list[Any], count: int) -> list[Operand] | None:
    """Operands in the compute type of the result; None if the result is not real, or a number is not representable in fp16 or bf16.

    PyTorch rounds such a number on some devices and not on others.
    """
    values = operands(node, args, count)
    if values is None or node.dtype not in FLOATS:
        return None
    if node.dtype in HALVES and any(
        not isinstance(v, View) and rounded(float(v), node.dtype) != float(v) for v in values
    ):
        return None
    compute = register_type(node.dtype)
    return [
        low.typed(low.rounded_as_stored(v), compute) if isinstance(v, View) else float(v)  # type: ignore[arg-type]
        for v in values
    ]


def numbers_too(low: Lowering, node: Node, values: list[Operand]) -> list[View]:
    """The same operands, with numbers as values of the result's shape."""
    shape, compute = tuple(node.shape or ()), register_type(node.dtype or "float32")
    return [
        v
        if isinstance(v, View)
        else low.pointwise("as", v, shape=shape, dtype=compute, compute=compute)
        for v in values
    ]


def signed_as(low: Lowering, size: View, sign: View) -> View:
    """The magnitude of one value with the sign of another."""
    size = low.pointwise("abs", size)
    return low.pointwise(
        "where",
        low.pointwise("signbit", sign),
        low.pointwise("neg", size),
        size,
        compute=size.dtype,
    )


@rule("fmod", "remainder")
def _modulo(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if node.dtype in INTS:
        return integers.modulo(low, node, args)
    values = real(low, node, args, 2)
    if values is None or node.dtype == "float64":
        return None
    if "fmod" in node.op:
        return finish(low, node, low.pointwise("fmod", *values))
    return finish(low, node, _remainder(low, *values)[0])


def _remainder(low: Lowering, a: Operand, b: Operand) -> tuple[View, View, View]:
    """The remainder with the sign of the divisor, with the sign of the dividend, and the condition that the two differ."""
    left = low.pointwise("fmod", a, b)
    below = low.pointwise("lt", b, 0.0) if isinstance(b, View) else b < 0
    other = low.pointwise(
        "and",
        low.pointwise("ne", left, 0.0),
        low.pointwise("ne", low.pointwise("lt", left, 0.0), below, compute="bool"),
        compute="bool",
    )
    return (
        low.pointwise("where", other, low.pointwise("add", left, b), left, compute=left.dtype),
        left,
        other,
    )


@rule("floor_divide", "div", "divide", "true_divide")
def _rounded_division(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    mode = "floor" if "floor" in node.op else kwargs.get("rounding_mode")
    if mode is None:
        return binary(low, node, args, kwargs)
    if node.dtype in INTS:
        return integers.division(low, node, args, mode)
    if mode == "trunc":
        if (pair := operands(node, args, 2)) is None or node.dtype not in FLOATS:
            return None
        return finish(
            low,
            node,
            low.pointwise(
                "trunc",
                low.pointwise(
                    "div", *pair, compute=compute_type(node, pair), correctly_rounded=True
                ),
            ),
        )
    values = real(low, node, args, 2)
    if values is None:
        return None
    a, b = values
    if node.dtype == "float64":
        return None
    quotient = low.pointwise("div", a, b)
    value = _floored(low, a, b, quotient)
    by_zero = low.pointwise("eq", b, 0.0) if isinstance(b, View) else b == 0
    if by_zero is True:
        return finish(low, node, quotient)
    return finish(
        low,
        node,
        value
        if by_zero is False
        else low.pointwise("where", by_zero, quotient, value, compute=value.dtype),
    )


def _floored(low: Lowering, a: Operand, b: Operand, quotient: View) -> View:
    """The quotient rounded down, as eager: from the remainder, since a rounded quotient may be the next integer."""
    _, left, other = _remainder(low, a, b)
    whole = low.pointwise("div", low.pointwise("sub", a, left), b)
    whole = low.pointwise(
        "sub", whole, low.pointwise("as", other, dtype=left.dtype, compute=left.dtype)
    )
    floor = low.pointwise("floor", whole)
    floor = low.pointwise(
        "add",
        floor,
        low.pointwise(
            "as",
            low.pointwise("gt", low.pointwise("sub", whole, floor), 0.5),
            dtype=left.dtype,
            compute=left.dtype,
        ),
    )
    return low.pointwise(
        "where",
        low.pointwise("eq", whole, 0.0),
        signed_as(low, low.pointwise("mul", quotient, 0.0), quotient),
        floor,
    )


@rule("atan2", "arctan2", "copysign", "fmax", "fmin", "hypot", "heaviside")
def _of_two(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name = node.op.split(".")[1]
    if name in ("fmax", "fmin") and node.dtype not in FLOATS:
        values = operands(node, args, 2)
        return (
            finish(low, node, low.pointwise(name[1:], *values, compute=compute_type(node, values)))
            if values
            else None
        )
    values = real(low, node, args, 2)
    if values is None:
        return None
    a, b = numbers_too(low, node, values)
    if name in ("atan2", "arctan2"):
        return finish(low, node, low.pointwise("atan2", a, b))
    if name == "copysign":
        return finish(low, node, signed_as(low, a, b))
    if name == "heaviside":
        step = low.pointwise("as", low.pointwise("gt", a, 0.0), dtype=a.dtype, compute=a.dtype)
        return finish(low, node, low.pointwise("where", low.pointwise("eq", a, 0.0), b, step))
    if name == "hypot":
        return finish(low, node, _hypot(low, low.pointwise("abs", a), low.pointwise("abs", b)))
    value = low.pointwise("where", low.pointwise("isnan", b), a, low.pointwise(name[1:], a, b))
    return finish(low, node, low.pointwise("where", low.pointwise("isnan", a), b, value))


def _hypot(low: Lowering, a: View, b: View) -> View:
    """Hypotenuse without overflow where the result has none, and without loss of small values; infinite if one operand is."""
    long, short = low.pointwise("max", a, b), low.pointwise("min", a, b)
    share = low.pointwise(
        "where", low.pointwise("eq", long, 0.0), 0.0, low.pointwise("div", short, long)
    )
    value = low.pointwise(
        "mul",
        long,
        low.pointwise("sqrt", low.pointwise("add", low.pointwise("mul", share, share), 1.0)),
    )
    infinite = low.pointwise(
        "or", low.pointwise("isinf", a), low.pointwise("isinf", b), compute="bool"
    )
    return low.pointwise("where", infinite, math.inf, value)


@rule("signbit")
def _signbit(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    values = operands(node, args, 1)
    if values is None or not isinstance(values[0], View):
        return None
    x = values[0]
    return (
        low.pointwise("signbit", x)
        if x.dtype in FLOATS
        else low.pointwise("lt", low.typed(x, "int64"), 0)
    )


@rule(
    "sinc",
    "special_sinc",
    "deg2rad",
    "rad2deg",
    "logit",
    "special_logit",
    "special_entr",
    "erfinv",
    "special_erfinv",
)
def _of_one(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name = node.op.split(".")[1].removeprefix("special_")
    values = real(low, node, args, 1)
    if values is None or not isinstance(values[0], View):
        return None
    x = values[0]
    if name == "sinc":
        turn = low.pointwise("mul", x, math.pi)
        return finish(
            low,
            node,
            low.pointwise(
                "where",
                low.pointwise("eq", x, 0.0),
                1.0,
                low.pointwise("div", low.pointwise("sin", turn), turn),
            ),
        )
    if name in ("deg2rad", "rad2deg"):
        scale = math.pi / 180 if name == "deg2rad" else 180 / math.pi
        return (
            finish(low, node, low.pointwise("mul", x, scale)) if node.dtype not in HALVES else None
        )
    if name == "logit":
        eps = kwargs.get("eps", args[1] if len(args) > 1 else None)
        if eps is not None:
            if node.dtype in HALVES:
                return None
            x = low.pointwise("min", low.pointwise("max", x, float(eps)), 1.0 - float(eps))
        return finish(
            low, node, low.pointwise("log", low.pointwise("div", x, low.pointwise("sub", 1.0, x)))
        )
    if name == "entr":
        some = low.pointwise("neg", low.pointwise("mul", x, low.pointwise("log", x)))
        none = low.pointwise("where", low.pointwise("eq", x, 0.0), 0.0, -math.inf, compute=x.dtype)
        value = low.pointwise("where", low.pointwise("gt", x, 0.0), some, none)
        return finish(low, node, low.pointwise("where", low.pointwise("isnan", x), x, value))
    return finish(low, node, _erfinv(low, x)) if node.dtype != "float64" else None


NEAR = (
    1.50140936,
    0.246640279,
    -0.00417739288,
    -0.00125272639,
    0.000218349386,
    -4.97241969e-6,
    -3.46398527e-6,
    4.68131348e-7,
    2.33359672e-8,
    -8.93192597e-9,
)
FAR = (
    2.83297703,
    1.00167516,
    0.00943425204,
    -0.00763747475,
    0.00577204205,
    -0.00362238803,
    0.00127106515,
    5.23020864e-5,
    -0.000138061596,
)
"""Polynomials for erfinv(x) / x in w − 2.5 and √w − 3, where w = −log(1 − x²) is below and above 5."""


def _erfinv(low: Lowering, x: View) -> View:
    """In single precision, to 2e-7."""
    w = low.pointwise(
        "neg",
        low.pointwise(
            "log", low.pointwise("mul", low.pointwise("sub", 1.0, x), low.pointwise("add", 1.0, x))
        ),
    )
    values = []
    for factors, at in (
        (NEAR, low.pointwise("sub", w, 2.5)),
        (FAR, low.pointwise("sub", low.pointwise("sqrt", w), 3.0)),
    ):
        value: Operand = factors[-1]
        for factor in reversed(factors[:-1]):
            value = low.pointwise("add", low.pointwise("mul", value, at), factor)
        values.append(value)
    value = low.pointwise("mul", x, low.pointwise("where", low.pointwise("lt", w, 5.0), *values))
    return low.pointwise(
        "where",
        low.pointwise("eq", low.pointwise("abs", x), 1.0),
        low.pointwise("mul", x, math.inf),
        value,
    )


@rule("isclose")
def _isclose(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    x, y = args[:2]
    if (
        not isinstance(x, View)
        or not isinstance(y, View)
        or x.dtype != y.dtype
        or x.dtype not in ("float32", "float64")
    ):
        return None
    given = dict(zip(("rtol", "atol", "equal_nan"), (1e-5, 1e-8, False), strict=True))
    given |= dict(zip(given, args[2:])) | kwargs
    allowed = low.pointwise(
        "add", low.pointwise("abs", low.pointwise("mul", y, given["rtol"])), given["atol"]
    )
    gap = low.pointwise("abs", low.pointwise("sub", x, y))
    near = low.pointwise(
        "and", low.pointwise("lt", gap, math.inf), low.pointwise("le", gap, allowed), compute="bool"
    )
    value = low.pointwise("or", low.pointwise("eq", x, y), near, compute="bool")
    if given["equal_nan"]:
        value = low.pointwise(
            "or",
            value,
            low.pointwise(
                "and", low.pointwise("isnan", x), low.pointwise("isnan", y), compute="bool"
            ),
            compute="bool",
        )
    return value


@rule("isposinf", "isneginf")
def _one_infinity(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | None:
    x = args[0]
    if not isinstance(x, View) or x.dtype not in FLOATS:
        return None
    return low.pointwise(
        "eq", x, converted(low, math.inf if "pos" in node.op else -math.inf, x.dtype)
    )
