"""Lowering rules for elementwise operators: arithmetic, comparisons, casts.

Formulas are those of the PyTorch documentation, written over a small vocabulary of scalar
operations that every renderer knows. Rules decline integer cases whose rounding differs.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.nodes import FLOATS, HALVES, INTS, Operand, View, register_type, rounded
from dvk.composer.ir.primitives import COMPARISONS, DISCONTINUOUS, FUNCTIONS, INTEGER_SAFE
from dvk.composer.lowering.dispatch import Lowering, NotLowered, as_operand, is_number, rule
from dvk.records import Node


def operands(node: Node, args: list[Any], count: int) -> list[Operand] | None:
    """The first `count` operands, or None if a kernel cannot read one."""
    result = [as_operand(a) for a in args[:count]]
    if (
        len(result) < count
        or any(o is None for o in result)
        or not any(isinstance(o, View) for o in result)
    ):
        return None
    return result  # type: ignore[return-value]  # None was excluded above


def finish(low: Lowering, node: Node, value: View) -> View:
    """Give the value the dtype of PyTorch's result, and a separate memory layout if the result's differs."""
    value = low.typed(value, node.dtype or value.dtype)
    if value.steps and node.strides != contiguous_strides(node.shape or ()):
        value = low.pointwise("as", value, dtype=value.dtype, compute=register_type(value.dtype))
    return value


def converted(low: Lowering, value: Operand, dtype: str | None) -> Operand:
    """An operand that PyTorch converts to the result's fp16 or bf16 before it computes: values beyond its range become infinite.

    Arithmetic takes a number at full precision and needs none of this.
    """
    if dtype not in HALVES:
        return value
    if isinstance(value, View):
        return (
            value
            if value.dtype in (dtype, "bool")
            else low.pointwise("cast", value, dtype=dtype, compute="float32")
        )
    return rounded(float(value), dtype)


def compute_type(node: Node, values: list[Operand]) -> str:
    views = [v.dtype for v in values if isinstance(v, View)]
    types = [node.dtype or "float32"]
    if node.dtype == "bool":
        types = [*views, *("float32" for v in values if isinstance(v, float))]
        if all(v == "bool" for v in views) and any(type(v) is int for v in values):
            types.append("int64")
    floats = [t for t in types if t in FLOATS]
    if floats:
        return "float64" if "float64" in floats else "float32"
    order = ["bool", "uint8", "int8", "int16", "int32", "int64"]
    types = types or ["bool"]
    if any(t not in order for t in types):
        raise NotLowered("a dtype that kernels do not compute in")
    return (
        "int16"
        if {"uint8", "int8"} <= set(types) <= {"bool", "uint8", "int8"}
        else max(types, key=order.index)
    )


SIMPLE = {
    **{
        name: name
        for name in (
            *FUNCTIONS,
            "neg",
            "abs",
            "sqrt",
            "rsqrt",
            "sigmoid",
            "floor",
            "ceil",
            "round",
            "trunc",
            "sign",
            "reciprocal",
            "isnan",
            "isinf",
        )
    },
    "negative": "neg",
    "absolute": "abs",
    "fix": "trunc",
    "sgn": "sign",
    "logical_not": "not",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "special_erf": "erf",
    "special_exp2": "exp2",
    "special_expit": "sigmoid",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "special_round": "round",
}
"""Operator → the single primitive that computes it."""


def _simple(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    op = SIMPLE[node.op.split(".")[1].rstrip("_")]
    values = operands(node, args, 1)
    if values is None or (op == "round" and (len(args) > 1 or kwargs)):
        return None
    compute = compute_type(node, values)
    if compute not in FLOATS and op not in INTEGER_SAFE:
        return None
    if op in DISCONTINUOUS:
        values = [low.rounded_as_stored(v) for v in values]
    return finish(low, node, low.pointwise(op, *values, compute=compute))


for _name in SIMPLE:
    rule(_name)(_simple)

BINARY = {
    "add": "add",
    "sub": "sub",
    "subtract": "sub",
    "mul": "mul",
    "multiply": "mul",
    "maximum": "max",
    "minimum": "min",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "eq": "eq",
    "ne": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "not_equal": "ne",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "ne",
}


def _compared(low: Lowering, *pair: Operand) -> list[Operand]:
    """Operands of a comparison: next to an fp16 or bf16 tensor, numbers and tensors of lower promotion priority are rounded to its type."""
    half = next((v for v in pair if isinstance(v, View) and v.dtype in HALVES), None)
    result: list[Operand] = []
    for value in pair:
        if half is None:
            result.append(value)
        elif not isinstance(value, View):
            nearest = rounded(float(value), half.dtype)
            result.append(value if nearest == value else nearest)
        elif value.dtype in INTS or (value.shape == () != half.shape and value.dtype in FLOATS):
            result.append(low.pointwise("cast", value, dtype=half.dtype, compute="float32"))
        else:
            result.append(low.rounded_as_stored(value))
    return result


def binary(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    op = BINARY.get(node.op.split(".")[1], "div")
    values = operands(node, args, 2)
    if values is None:
        return None
    compute = compute_type(node, values)
    logical = "logical" in node.op
    if op in COMPARISONS and not logical:
        values = _compared(low, *values)
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    a, b = (converted(low, v, node.dtype) for v in values) if op in ("max", "min") else values
    if alpha != 1:
        b = b * alpha if is_number(b) else low.pointwise("mul", b, alpha, compute=compute)
    if logical:
        a, b = (
            low.pointwise("ne", v, 0) if isinstance(v, View) and v.dtype != "bool" else v
            for v in (a, b)
        )
        compute = "bool"
    return finish(low, node, low.pointwise(op, a, b, compute=compute))


for _name in BINARY:
    rule(_name)(binary)


@rule("rsub")
def _rsub(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    values = operands(node, args, 2)
    if values is None or kwargs.get("alpha", args[2] if len(args) > 2 else 1) != 1:
        return None
    return finish(
        low, node, low.pointwise("sub", values[1], values[0], compute=compute_type(node, values))
    )


@rule("addcmul", "addcdiv")
def _addc(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    values = operands(node, args, 3)
    if values is None or node.dtype not in FLOATS:
        return None
    a, b, c = values
    compute, value = register_type(node.dtype), kwargs.get("value", 1)
    scaled = b if value == 1 else low.pointwise("mul", b, value, compute=compute)
    return finish(
        low,
        node,
        low.pointwise(
            "add",
            a,
            low.pointwise("mul" if "mul" in node.op else "div", scaled, c, compute=compute),
        ),
    )


@rule("lerp")
def _lerp(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    values = operands(node, args, 3)
    if values is None or node.dtype not in FLOATS:
        return None
    start, end, weight = values
    gap = low.pointwise("sub", end, start)
    near = low.pointwise("add", start, low.pointwise("mul", weight, gap))
    far = low.pointwise(
        "sub",
        end,
        low.pointwise(
            "mul",
            low.pointwise("sub", 1.0, weight) if isinstance(weight, View) else 1.0 - weight,
            gap,
        ),
    )
    if isinstance(weight, View):
        return finish(
            low,
            node,
            low.pointwise(
                "where", low.pointwise("lt", low.pointwise("abs", weight), 0.5), near, far
            ),
        )
    return finish(low, node, near if abs(weight) < 0.5 else far)


@rule("square")
def _square(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    return finish(
        low, node, low.pointwise("mul", args[0], args[0], compute=compute_type(node, args[:1]))
    )


@rule("isfinite", "frac", "nan_to_num", "logaddexp", "xlogy")
def _composite(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name = node.op.split(".")[1]
    values = operands(node, args, 2 if name in ("logaddexp", "xlogy") else 1)
    if values is None or not isinstance(values[0], View) or values[0].dtype not in FLOATS:
        return None
    x = values[0]
    if name == "isfinite":
        return low.pointwise("lt", low.pointwise("abs", x), math.inf)
    if name == "frac":
        return finish(low, node, low.pointwise("sub", x, low.pointwise("trunc", x)))
    if name == "nan_to_num":
        given = dict(zip(("nan", "posinf", "neginf"), args[1:])) | kwargs
        nan, top, bottom = (given.get(k) for k in ("nan", "posinf", "neginf"))
        largest = LARGEST[x.dtype]
        y = low.pointwise(
            "where",
            low.pointwise("isnan", x),
            converted(low, 0.0 if nan is None else nan, x.dtype),
            x,
        )
        y = low.pointwise(
            "where",
            low.pointwise("eq", x, math.inf),
            converted(low, largest if top is None else top, x.dtype),
            y,
        )
        y = low.pointwise(
            "where",
            low.pointwise("eq", x, -math.inf),
            converted(low, -largest if bottom is None else bottom, x.dtype),
            y,
        )
        return finish(low, node, y)
    other = values[1]
    if not isinstance(other, View):
        return None
    other = low.typed(other, register_type(node.dtype or x.dtype))  # which may be integers
    if name == "xlogy":
        value = low.pointwise(
            "where",
            low.pointwise("eq", x, 0.0),
            0.0,
            low.pointwise("mul", x, low.pointwise("log", other)),
        )
        return finish(
            low, node, low.pointwise("where", low.pointwise("isnan", other), math.nan, value)
        )
    gap = low.pointwise("sub", x, other)
    tail = low.pointwise(
        "log1p", low.pointwise("exp", low.pointwise("neg", low.pointwise("abs", gap))), unit=True
    )
    peak = low.pointwise("max", x, other)
    # Equal infinities have no gap.
    return finish(
        low,
        node,
        low.pointwise(
            "where", low.pointwise("isinf", peak), peak, low.pointwise("add", peak, tail)
        ),
    )


LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}


@rule("clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "relu6", "relu")
def _clamp(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    name = node.op.split(".")[1]
    x = as_operand(args[0])
    if not isinstance(x, View):
        return None
    if name == "clamp_max":
        low_end, high_end = None, args[1]
    else:
        low_end = kwargs.get("min", kwargs.get("min_val", args[1] if len(args) > 1 else None))
        high_end = kwargs.get("max", kwargs.get("max_val", args[2] if len(args) > 2 else None))
    if name == "hardtanh":
        low_end, high_end = (
            -1.0 if low_end is None else low_end,
            1.0 if high_end is None else high_end,
        )
    if name in ("relu", "relu6"):
        low_end, high_end = 0, 6 if name == "relu6" else None
    compute = compute_type(node, [x])
    for end, op in ((low_end, "max"), (high_end, "min")):
        if end is not None:
            bound = as_operand(end)
            if bound is None or (isinstance(bound, float) and math.isnan(bound)):
                return None
            x = low.pointwise(op, x, converted(low, bound, node.dtype), compute=compute)
    return finish(low, node, x)


@rule("where", "masked_fill")
def _where(low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]) -> View | None:
    if node.op.split(".")[1] == "masked_fill":
        args = [args[1], args[2], args[0]]
    choices = operands(node, args, 3)
    if choices is None or not isinstance(choices[0], View) or choices[0].dtype != "bool":
        return None
    chosen, *values = choices
    compute = compute_type(node, values)
    return finish(
        low,
        node,
        low.pointwise(
            "where", chosen, *(converted(low, v, node.dtype) for v in values), compute=compute
        ),
    )


@rule(
    "to",
    "_to_copy",
    "type_as",
    "float",
    "half",
    "bfloat16",
    "double",
    "int",
    "long",
    "bool",
    "_assert_tensor_metadata",
)
def _to(
    low: Lowering, node: Node, args: list[Any], kwargs: dict[str, Any]
) -> View | tuple[View, ...] | None:
    if "_assert" in node.op:
        return ()
    x = as_operand(args[0])
    source = low.nodes.get(node.args[0]["ref"])
    if not isinstance(x, View) or node.dtype is None or source is None:
        return None
    if node.dtype == x.dtype:
        copies = kwargs.get("copy") or any(a is True for a in args[3:]) or "_to_copy" in node.op
        if copies or source.strides != node.strides:
            return low.pointwise("as", x, dtype=x.dtype, compute=register_type(x.dtype))
        return x
    if node.dtype == "bool":
        return low.pointwise("ne", x, 0)
    return low.pointwise(
        "cast",
        x if node.dtype in HALVES else low.rounded_as_stored(x),
        dtype=node.dtype,
        compute=register_type(node.dtype),
    )
