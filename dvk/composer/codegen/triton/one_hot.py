"""Turn one-hot sums into loads: Σ_r where(r == t, f(r), 0) is f(t).

A cross entropy then reads its target's element once more instead of comparing every element of the row with the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dvk.composer.ir.affine import Affine
from dvk.composer.ir.loops import Instr, Kernel, Ref

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class OneHot:
    """The index `at` (a row-level register) and the element-level register `value` to read there."""

    at: int
    value: int


def one_hot(kernel: Kernel, reduce: Instr) -> OneHot | None:
    """Match the one-hot form of a sum; None otherwise. The row must be one loop variable, compared with a row-level index."""
    operand = reduce.args[0]
    if reduce.op != "reduce_sum" or not isinstance(operand, Ref) or len(kernel.reduced) != 1:
        return None
    chosen = kernel.instrs[operand.id]
    if chosen.op != "where":
        return None
    condition, value, other = chosen.args
    if (
        not isinstance(condition, Ref)
        or not isinstance(value, Ref)
        or isinstance(other, Ref)
        or other != 0
    ):
        return None
    hit = kernel.instrs[condition.id]
    if kernel.instrs[value.id].type != reduce.type:
        return None
    if hit.op != "eq" or hit.compute != "int64":
        return None
    for position, at in (hit.args, hit.args[::-1]):
        if not isinstance(position, Ref) or not isinstance(at, Ref):
            continue
        source, target = kernel.instrs[position.id], kernel.instrs[at.id]
        if (
            source.op == "iota"
            and source.offset == Affine.of(kernel.reduced[0])
            and kernel.is_row_value(target)
        ):
            return OneHot(at.id, value.id)
    return None
