"""Matmuls of few rows behind a norm: the scale of a row, which a sum over the row determines, is applied to the row of the result.

With r = rsqrt(Σ x² / n + ε), `((x · r) · g) @ w` is r · ((x · g) @ w). The loop over k reads x for the product and adds up x²:
the norm needs no kernel. x · g is rounded to bf16 as `(x · r) · g` is; fp16 would overflow without r.
"""

from __future__ import annotations

import math
from typing import Any

from dvk.composer.ir.nodes import FLOATS, IRNode, Operand, View
from dvk.composer.lowering.dequantised import CONVERSIONS, through, without
from dvk.composer.lowering.dispatch import Lowering

MOST_ROWS = 1
"""Rows of a product that adds up its own norm. An H200 took 19 µs for Llama 3 8B's qkv of one token, and 22 with a kernel for the norm.
Of 16 tokens it took 23 either way, of 64 tokens 28 instead of 24: matrix units wait for what is done to the rows."""
MOST_FACTORS = 3
"""Operands of a row that are multiplied where it is read: the row, a gain."""
MOST_STEPS = 16
"""Operations between a row's sum and its scale."""


def normed_product(low: Lowering, left: View, right: View, marks: dict[str, Any]) -> View | None:
    """The product of normed rows and a matrix, summed over their last dimension, in float32; None for others."""
    if low.device != "cuda" or left.dtype != "bfloat16" or not _is_matrix(right):
        return None
    if math.prod(left.shape[:-1]) > MOST_ROWS:
        return None
    factors: list[Operand] = []
    rows = _factored(left, factors)
    if rows is None or not any(isinstance(f, View) and _sums(f.base) for f in factors):
        return None
    if len(rows) > MOST_FACTORS:
        return None
    row = rows[0]
    for other in rows[1:]:
        row = low.pointwise("mul", row, other, compute="float32")
    row = low.typed(row, left.dtype)
    marks = {**marks, "normed": True}
    times = low.pointwise("mul", row, right, dtype="float32", compute="float32", **marks)
    value = low.reduce("sum", times, (len(times.shape) - 1,), False, **marks)
    for factor in factors:
        if isinstance(factor, View):
            factor = low.typed(factor, "float32")
        value = low.pointwise("mul", value, factor, dtype="float32", compute="float32")
    return value


def _is_matrix(right: View) -> bool:
    """A matrix in memory."""
    return right.base.kind != "pw" and sum(size > 1 for size in right.shape) == 2


def _factored(view: View, factors: list[Operand]) -> list[View] | None:
    """What is multiplied and varies along the last dimension; the rest goes to `factors`. None for what is not a product."""
    base = view.base
    if base.kind != "pw":
        return [view]
    if base.op in CONVERSIONS and len(base.operands) == 1 and base.dtype in FLOATS:
        inner = base.operands[0]
        if not isinstance(inner, View) or inner.dtype not in FLOATS:
            return None
        return _factored(through(inner, view), factors)
    if base.op != "mul":
        return [view]
    found: list[View] = []
    for operand in base.operands:
        if not isinstance(operand, View):
            factors.append(operand)
            continue
        part = through(operand, view)
        if (apart := without(part, 1)) is not None:
            factors.append(apart)
            continue
        if (rest := _factored(part, factors)) is None:
            return None
        found += rest
    return found or None


def _sums(prim: IRNode) -> bool:
    """The value is computed from a sum by a few operations."""
    pending, seen = [prim], set[IRNode]()
    while pending and len(seen) < MOST_STEPS:
        one = pending.pop()
        if one.kind == "reduce":
            return one.op == "sum"
        if one.kind == "pw" and one not in seen:
            seen.add(one)
            pending += [o.base for o in one.operands if isinstance(o, View)]
    return False
