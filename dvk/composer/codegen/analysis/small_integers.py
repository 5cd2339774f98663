"""Ranges of integers that are unpacked from words: which of them a float holds exactly."""

from __future__ import annotations

import math

from dvk.composer.ir.loops import Argument, Instr, Kernel, Ref
from dvk.composer.ir.nodes import BYTES, INTS

EXACT = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 22}
"""Float type → integers up to here, and sums of two of them in float32, are exact."""
Range = tuple[float, float]
UNKNOWN: Range = (-math.inf, math.inf)


def small_range(kernel: Kernel, value: Argument) -> Range:
    """The least and the largest value of an integer; infinite where nothing is known."""
    if not isinstance(value, Ref):
        return float(value), float(value)
    instr = kernel.instrs[value.id]
    if instr.type not in INTS:
        return UNKNOWN
    return _unwrapped(kernel, instr) if _fits(kernel, instr) else _whole(instr)


def _whole(instr: Instr) -> Range:
    """The range of an integer's type."""
    bits = 8 * BYTES[instr.type]
    if instr.type == "uint8":
        return 0.0, 2.0**bits - 1
    return -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1


def _fits(kernel: Kernel, instr: Instr) -> bool:
    """An integer's value is what its operation gives in integers of any size: it does not wrap."""
    (low, high), (least, most) = _unwrapped(kernel, instr), _whole(instr)
    return least <= low and high <= most


def _unwrapped(kernel: Kernel, instr: Instr) -> Range:
    """The range that an integer operation gives in integers of any size."""
    found = whole = _whole(instr)
    parts = [small_range(kernel, a) for a in instr.args]
    match instr.op, parts:
        case (
            ("as" | "cast_int32" | "cast_int16" | "cast_int64" | "cast_uint8" | "cast_int8"),
            [part],
        ):
            found = part
        case "band", [left, right]:
            tops = [top for low, top in (left, right) if low >= 0]
            found = (0.0, min(tops)) if tops else whole
        case "shr", [(low, high), (least, most)] if low >= 0 and 0 <= least == most:
            found = (math.floor(low / 2**least), math.floor(high / 2**least))
        case "add", [left, right]:
            found = (left[0] + right[0], left[1] + right[1])
        case "sub", [left, right]:
            found = (left[0] - right[1], left[1] - right[0])
    return found


def exact_in(kernel: Kernel, value: Argument, dtype: str) -> bool:
    """An integer is the same number in a floating-point type, and may be computed in float32 on the way."""
    if dtype not in EXACT or (isinstance(value, Ref) and kernel.instrs[value.id].type not in INTS):
        return False
    low, high = small_range(kernel, value)
    return max(-low, high) <= EXACT[dtype] and _is_exact_inside(kernel, value)


def _is_exact_inside(kernel: Kernel, value: Argument) -> bool:
    """Operands of sums are small, too, and no sum wraps: the float of a sum is the sum of the floats."""
    if not isinstance(value, Ref):
        return True
    instr = kernel.instrs[value.id]
    if instr.op not in ("add", "sub", "as"):
        return True
    return _fits(kernel, instr) and all(
        max(abs(end) for end in small_range(kernel, a)) <= EXACT["float32"]
        and _is_exact_inside(kernel, a)
        for a in instr.args
    )
