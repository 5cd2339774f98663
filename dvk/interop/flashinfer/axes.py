"""Sizes by name. An axis is a constant, a variable that a call's inputs bind, or an expression of the others; constraints relate them.

Expressions and constraints are read as Python and computed here without `eval`: numbers, names, arithmetic, comparisons, and, or, not.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dvk.interop.flashinfer.fields import MAX_SIZE, Fields

Sizes = dict[str, int]
"""The size of each axis, by name."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
MAX_POWER = 64
"""Largest exponent that is computed."""


@dataclass(frozen=True)
class Axis:
    """One named size: `value` of a constant, `expression` of an expression."""

    kind: Literal["const", "var", "expr"]
    value: int = 0
    expression: str = ""


def read_axes(fields: Fields) -> dict[str, Axis]:
    """The `axes` of a definition.

    Raises:
        UsageError: an unknown type, a constant without a value, or an expression that is none.
    """
    found = {
        name: _axis(Fields(value, f"axis `{name}` of {fields.where}"))
        for name, value in fields.mapping("axes").items()
    }
    for name, axis in found.items():
        unknown = names_in(axis.expression) - found.keys() if axis.kind == "expr" else set()
        if unknown:
            raise fields.error(f"computes axis `{name}` from `{min(unknown)}`, which is no axis")
    return found


def _axis(fields: Fields) -> Axis:
    kind = fields.value.get("type", "const" if "value" in fields.value else "var")
    if kind == "const":
        return Axis("const", value=fields.size("value"))
    if kind == "var":
        return Axis("var")
    if kind == "expr":
        return Axis("expr", expression=checked(fields.text("expression"), fields))
    raise fields.error(f"has the type `{kind}`", "the types are const, var and expr")


def checked(expression: str, fields: Fields) -> str:
    """An expression that parses.

    Raises:
        UsageError: it does not.
    """
    try:
        ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        raise fields.error(f"has `{expression}`, which is no Python expression") from None
    return expression.strip()


def is_number(axis: str) -> bool:
    """Whether a name in a shape is a size itself, as in `["batch", "16"]`."""
    return axis.isdecimal() and len(axis) < len(str(MAX_SIZE))


def names_in(expression: str) -> set[str]:
    """The names that an expression reads."""
    return {
        node.id for node in ast.walk(ast.parse(expression, mode="eval")) if type(node) is ast.Name
    }


def evaluate(expression: str, sizes: Mapping[str, Any]) -> Any:
    """The value of an expression.

    Raises:
        ValueError: it uses something else than arithmetic, comparisons and these names.
    """
    try:
        return _value(ast.parse(expression, mode="eval").body, sizes)
    except (ZeroDivisionError, OverflowError, TypeError, RecursionError) as error:
        raise ValueError(f"`{expression}`: {error}") from None


def _value(node: ast.expr, sizes: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name) and node.id in sizes:
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, sizes)
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, (ast.USub, ast.UAdd)):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BoolOp):
        every = [_value(part, sizes) for part in node.values]
        return all(every) if isinstance(node.op, ast.And) else any(every)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, sizes), _value(node.right, sizes)
        if isinstance(node.op, ast.Pow) and not -MAX_POWER <= right <= MAX_POWER:
            raise ValueError(f"the exponent {right} is too large")
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        values = [_value(part, sizes) for part in (node.left, *node.comparators)]
        return all(_COMPARE[type(op)](*pair) for op, pair in zip(node.ops, zip(values, values[1:])))
    raise ValueError(f"`{ast.unparse(node)}` is not supported in an expression of axes")


def resolve(axes: Mapping[str, Axis], given: Mapping[str, int], fields: Fields) -> Sizes:
    """Every axis's size, from those of the variables.

    Raises:
        UsageError: a variable has no size, a constant another one, or an expression gives no size.
    """
    sizes: Sizes = {}
    for name, axis in axes.items():
        if axis.kind == "const":
            if given.get(name, axis.value) != axis.value:
                raise fields.error(f"has {name}={given[name]}, which is {axis.value} by definition")
            sizes[name] = axis.value
        elif axis.kind == "var":
            if name not in given:
                raise fields.error(
                    f"gives the variable axis `{name}` no size", f'write "axes": {{"{name}": 16}}'
                )
            sizes[name] = given[name]
    left = {name: axis.expression for name, axis in axes.items() if axis.kind == "expr"}
    while left:
        ready = [name for name, text in left.items() if names_in(text) <= sizes.keys()]
        if not ready:
            raise fields.error(f"has axes that depend on each other: {', '.join(left)}")
        for name in ready:
            sizes[name] = _size(name, left.pop(name), sizes, fields)
    return sizes


def _size(name: str, expression: str, sizes: Sizes, fields: Fields) -> int:
    try:
        value = evaluate(expression, sizes)
    except ValueError as error:
        raise fields.error(f"cannot compute axis `{name}`: {error}") from None
    if isinstance(value, int) and abs(value) > MAX_SIZE:  # its digits may be too many to write
        raise fields.error(f"makes axis `{name}` = {expression}, which is no 64-bit size")
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not whole or not 0 <= value <= MAX_SIZE:
        raise fields.error(f"makes axis `{name}` = {expression} = {value}, which is no size")
    return int(value)
