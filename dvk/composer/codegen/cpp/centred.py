"""A mean that is subtracted from what it is of, made around the row's first element.

    m = k + Σ(x − k) / n        instead of        m = Σx · (1/n)

Rows whose mean is much larger than their spread keep their digits: what is rounded is of the order of the spread. In a row of equal
elements x − m is 0, as it is in PyTorch, whose kernels follow the mean as they go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dvk.composer.codegen.cpp.scalar import REGISTER
from dvk.composer.ir.loops import Instr, Kernel, Ref

if TYPE_CHECKING:
    from dvk.composer.codegen.cpp.writer import Writer

FAR = "1e37f"
"""A first element that is larger, infinite or NaN is not shifted by: differences could overflow where sums do not."""


def centres(kernel: Kernel) -> dict[int, int]:
    """Means that are subtracted from what they are of: the number of the mean → that of the sum."""
    found = {}
    for instr in kernel.instrs:
        mean = _behind(kernel, instr, 1) if instr.op == "sub" else None
        total = _behind(kernel, mean, 0) if mean is not None and mean.op == "mul" else None
        if mean is None or total is None or total.op != "reduce_sum" or total.args != instr.args[:1]:
            continue
        weight, x = mean.args[1], _behind(kernel, total, 0)
        if x is None or kernel.is_row_value(x) or not x.type == total.type == mean.type == "float32":
            continue
        if not isinstance(weight, Ref) and abs(weight * kernel.row_length - 1.0) < 1e-6:
            found[mean.id] = total.id
    return found


def _behind(kernel: Kernel, instr: Instr, position: int) -> Instr | None:
    argument = instr.args[position]
    return kernel.instrs[argument.id] if isinstance(argument, Ref) else None


def declare_first(writer: Writer, total: Instr, chunk: int) -> None:
    """Declare `k…`, the first element of the row, or of each row in the piece of the lane."""
    source, cell = total.args[0], f"k{total.id}" + ("[l]" if writer.arrays else "")
    assert isinstance(source, Ref)
    if writer.arrays:
        writer.put(f"float k{total.id}[{chunk}];")
        writer.put("#pragma omp simd")
        writer.open("for (long l = 0; l < len; ++l)")
        if writer.lane is not None:
            writer.put(f"const long {writer.names[writer.lane]} = lo + l;")
    else:
        writer.put(f"float {cell};")
        writer.open("")
    for var in writer.k.reduced:
        writer.put(f"const long {writer.names[var]} = 0;")
    for instr in writer.closure([source.id]):
        writer.scalar(instr)
    writer.put(f"{cell} = v{source.id} > -{FAR} && v{source.id} < {FAR} ? v{source.id} : 0;")
    writer.close()


def declare_mean(writer: Writer, total: Instr, chunk: int) -> None:
    """Declare `c…`, the mean, and make of the sum of differences the sum."""
    kind, length = REGISTER[total.type], writer.k.row_length
    at = "[l]" if writer.arrays else ""
    mean, total_ = f"k{total.id}{at} + v{total.id}{at} / {length}", f"v{total.id}{at}"
    if writer.arrays:
        writer.put(f"{kind} c{total.id}[{chunk}];")
        writer.put("#pragma omp simd")
        writer.open("for (long l = 0; l < len; ++l)")
    writer.put(f"{f'c{total.id}[l]' if at else f'const {kind} c{total.id}'} = {mean};")
    writer.put(f"{total_} += ({kind}){length} * k{total.id}{at};")
    if writer.arrays:
        writer.close()
