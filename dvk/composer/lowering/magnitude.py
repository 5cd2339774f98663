"""Upper bounds of finite values in the primitive graph, by the operations that compute them.

Registers hold float16 values in single precision. A product or a sum above 65,504 is infinite in the memory that PyTorch writes it to, so
lowering rounds it there; most activations cannot exceed it, and need no rounding.
"""

from __future__ import annotations

import math

from dvk.composer.ir.nodes import IRNode, Scalar, View, reduced_dims
from dvk.composer.ir.primitives import BOUNDED_BY_OPERANDS, UNIT

MOST = 65504.0
"""The largest finite float16."""
INFINITE = 65520.0
"""Values of at least this magnitude are infinite in float16."""
_DEPTH = 32
"""Maximum operations to follow behind a value; a longer chain has no bound."""


def magnitude_bound(prim: IRNode, known: dict[IRNode, float], depth: int = _DEPTH) -> float:
    """An upper bound of the magnitude of finite values, assuming that every value in memory is finite.

    Args:
        known: bounds found earlier, added to.
    """
    if prim not in known:
        known[prim] = _largest(prim, known, depth)
    return known[prim]


def _largest(prim: IRNode, known: dict[IRNode, float], depth: int) -> float:
    if prim.dtype == "bool" or prim.op in UNIT:
        return 1.0
    if prim.kind in ("source", "extern") or (
        prim.op in ("cast", "gather") and prim.dtype == "float16"
    ):
        return MOST if prim.dtype == "float16" else math.inf
    if not depth or prim.kind == "scan":
        return math.inf
    of = [
        magnitude_bound(o.base, known, depth - 1) if isinstance(o, View) else _number(o)
        for o in prim.operands
    ]
    if prim.kind == "reduce":
        return _reduced(prim, of[0])
    if prim.op == "mul":
        return math.inf if math.inf in of else math.prod(of)
    if prim.op in ("add", "sub"):
        return sum(of)
    if prim.op == "div":
        by = prim.operands[1]
        return math.inf if isinstance(by, View) or not by else of[0] / abs(by)
    if prim.op == "bounded":
        of.append(_number(prim.attrs["fill"]))
    return max(of[1:] if prim.op == "where" else of) if prim.op in BOUNDED_BY_OPERANDS else math.inf


def _number(value: Scalar) -> float:
    return abs(float(value)) if math.isfinite(value) else 0.0


def _reduced(prim: IRNode, of: float) -> float:
    if prim.op in ("max", "min", "kth"):
        return of
    operand = prim.operands[0]
    assert isinstance(operand, View)
    return (
        of * math.prod(operand.shape[d] for d in reduced_dims(prim))
        if prim.op == "sum"
        else math.inf
    )
