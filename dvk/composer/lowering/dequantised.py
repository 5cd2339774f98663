"""Matmuls of quantised operands: their codes are multiplied, and what does not vary along k scales the sum.

`(x.float() * s) @ (w.float() * t)`, with codes x and w of 8 bits and scales s and t of rows, columns or whole tensors, is the sum of the
products of codes, times s and t. A sum of integers is exact; a sum of floating-point codes has float32's accuracy unless the result is
rounded to 16 bits anyway. An infinite scale makes its results NaN, as it does in the original where it meets a code that is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dvk.composer.ir.affine import ZERO, Affine, Var
from dvk.composer.ir.nodes import EIGHTHS, FLOATS, HALVES, Operand, View, register_type
from dvk.composer.lowering.dispatch import Lowering

CODES = ("int8", *EIGHTHS)
"""Types of codes that matrix units multiply."""
CONVERSIONS = ("as", "cast")
MOST_WHOLE = (1 << 17) - 1
"""Products of int8 codes whose sum int32 holds: each is at most (-128)² = 2¹⁴."""


@dataclass(frozen=True)
class Dequantised:
    """An operand of a matmul as codes times factors."""

    codes: View
    factors: tuple[Operand, ...]
    """Each broadcasts to the operand without the dimensions that are summed, or is what else was kept of it."""


def dequantised(view: View, keep: Callable[[View], View | None]) -> Dequantised | None:
    """Codes and factors of an operand of a matmul; None for others.

    Args:
        keep: what scales the sum instead of a factor of the operand; None if the factor varies too much.
    """
    factors: list[Operand] = []
    while view.base.kind == "pw":
        base = view.base
        if base.op in CONVERSIONS and len(base.operands) == 1 and base.dtype in FLOATS:
            inner = base.operands[0]
            if not isinstance(inner, View):
                return None
            view = through(inner, view)
            if view.dtype in CODES:
                return Dequantised(view, tuple(factors))
            continue
        if base.op != "mul":
            return None
        parts = [through(o, view) if isinstance(o, View) else o for o in base.operands]
        kept = [keep(part) if isinstance(part, View) else part for part in parts]
        number = next((n for n, part in enumerate(kept) if part is not None), None)
        other = None if number is None else parts[1 - number]
        if number is None or not isinstance(other, View):
            return None
        factors.append(kept[number])  # type: ignore[arg-type]
        view = other
    return None


def through(operand: View, view: View) -> View:
    """An operand of a view's base, read through the view."""
    made = operand.then("expand", view.base.shape, view.base.shape)
    for step in view.steps:
        made = made.then(step.method, step.args, step.after)
    return made


def without(view: View, summed: int) -> View | None:
    """A factor without its last `summed` dimensions; None if it varies along them, or has no index."""
    index = tuple(Affine.of(Var(size)) if size > 1 else ZERO for size in view.shape)
    where = view.base_index(index)
    along = frozenset().union(*(part.vars for part in index[len(index) - summed :]))
    if where is None or any(part.vars & along for part in where):
        return None
    for _ in range(summed):
        view = view.then("select", (len(view.shape) - 1, 0), view.shape[:-1])
    return view


def product_of_codes(
    low: Lowering, left: View, right: View, summed: int, marks: dict[str, Any]
) -> View | None:
    """The product of two dequantised operands, in float32; None for others."""
    sides = [dequantised(view, lambda part: without(part, summed)) for view in (left, right)]
    if sides[0] is None or sides[1] is None:
        return None
    codes = [sides[0].codes, sides[1].codes]
    length = math.prod(codes[0].shape[-summed:])
    if (codes[0].dtype == "int8") != (codes[1].dtype == "int8") or left.dtype == "float64":
        return None
    if codes[0].dtype == "int8" and length > MOST_WHOLE:
        return None
    rough = left.dtype in HALVES
    value = sum_of_codes(low, codes[0], codes[1], summed, marks, "sums" if rough else "halves")
    return scaled_by(low, value, (*sides[0].factors, *sides[1].factors))


def scaled_by(low: Lowering, value: View, factors: Iterable[Operand]) -> View:
    """A sum in float32 times factors of it."""
    for factor in factors:
        if isinstance(factor, View):
            factor = finite_or_nan(low, factor)
        value = low.pointwise("mul", value, factor, dtype="float32", compute="float32")
    return value


def finite_or_nan(low: Lowering, factor: View) -> View:
    """A factor in float32, NaN in place of an infinity."""
    factor = low.typed(factor, "float32")
    nothing = low.pointwise("mul", factor, 0.0, compute="float32")
    return low.pointwise("add", factor, nothing, compute="float32")


def sum_of_codes(
    low: Lowering, left: View, right: View, summed: int, marks: dict[str, Any], how: str
) -> View:
    """The sum of products of codes, in float32.

    Args:
        how: of floating-point codes, `fast`: matrix units add them with fewer bits than float32; `sums`: sums of 128 products are added in
            float32; `halves`: they are multiplied as fp16, which holds each code, and added in float32.
    """
    whole = left.dtype == "int8"
    kind = "int32" if whole else register_type(left.dtype)
    if not whole and left.dtype != right.dtype:
        how = "halves"
    marks = {**marks, "tf32": False, **({} if whole else {"narrow": how})}
    times = low.pointwise("mul", left, right, dtype=kind, compute=kind, **marks)
    rank = len(times.shape)
    added = low.reduce("sum", times, tuple(range(rank - summed, rank)), False, **marks)
    return low.pointwise("cast", added, dtype="float32", compute="float32") if whole else added
