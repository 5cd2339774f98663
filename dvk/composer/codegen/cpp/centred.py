"""A mean that is subtracted from its own operand, computed around the row's first element.

    m = k + Σ(x − k) / n        instead of        m = Σx · (1/n)

Rows whose mean is much larger than their spread keep their digits: rounding errors have the order of the spread. In a row of equal elements
x − m is 0, as in PyTorch, whose kernels update the mean as they go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dvk.composer.ir.loops import Instr, Kernel, Ref

if TYPE_CHECKING:
    pass


def centres(kernel: Kernel) -> dict[int, int]:
    """Means that are subtracted from their operand: index of the mean → index of the sum."""
    result = {}
    for instr in kernel.instrs:
        mean = _behind(kernel, instr, 1) if instr.op == "sub" else None
        total = _behind(kernel, mean, 0) if mean is not None and mean.op == "mul" else None
        if (
            mean is None
            or total is None
            or total.op != "reduce_sum"
            or total.args != instr.args[:1]
        ):
            continue
        weight, x = mean.args[1], _behind(kernel, total, 0)
        if (
            x is None
            or kernel.is_row_value(x)
            or not x.type == total.type == mean.type == "float32"
        ):
            continue
        if not isinstance(weight, Ref) and abs(weight * kernel.row_length - 1.0) < 1e-6:
            result[mean.id] = total.id
    return result


def _behind(kernel: Kernel, instr: Instr, position: int) -> Instr | None:
    argument = instr.args[position]
    return kernel.instrs[argument.id] if isinstance(argument, Ref) else None
