"""One-hot sums become loads: Σ_r where(r == t, f(r), 0) is f(t).

A cross entropy so reads its target's element once more instead of comparing every element of the row with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dvk.composer.ir.affine import Affine
from dvk.composer.ir.loops import Instr, Kernel, Ref

if TYPE_CHECKING:
    from dvk.composer.codegen.triton.writer import Writer


@dataclass(frozen=True)
class OneHot:
    """The position `at` (a row-level register) and the element-level register `value` that is wanted there."""

    at: int
    value: int


def one_hot(kernel: Kernel, reduce: Instr) -> OneHot | None:
    """The one-hot form of a sum, if it has it: the row is one loop variable, compared with a row-level position."""
    operand = reduce.args[0]
    if reduce.op != "reduce_sum" or not isinstance(operand, Ref) or len(kernel.reduced) != 1:
        return None
    chosen = kernel.instrs[operand.id]
    if chosen.op != "where":
        return None
    condition, value, other = chosen.args
    if not isinstance(condition, Ref) or not isinstance(value, Ref) or isinstance(other, Ref) or other != 0:
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
        if source.op == "iota" and source.offset == Affine.of(kernel.reduced[0]) and kernel.is_row_value(target):
            return OneHot(at.id, value.id)
    return None


def gather(writer: Writer, reduce: Instr, found: OneHot) -> None:
    """Emit `f(t)`: the elements the value needs, with the row's index replaced by the position; 0 outside the row."""
    tile, name = writer.tile, f"t{reduce.id}"
    row = tile.axes[-1]
    at = writer.arg(Ref(found.at), "int64")
    tile.put(f"{name}mask = ({at} >= 0) & ({at} < {writer.k.row_length})")
    tile.put(f"{name} = tl.where({name}mask, {at}, 0)")
    writer.walk(replace(row, name=name, vars=writer.k.reduced, block=1, masked=True))
    for instr in writer.closure([found.value], row_level=False):
        text = writer.value(instr)
        writer.names[instr.id] = f"{name}_{instr.id}"
        tile.put(f"{name}_{instr.id} = {text}")
    value = writer.arg(Ref(found.value), reduce.type)
    writer.names.clear()
    writer.walk(row)
    tile.put(f"v{reduce.id} = tl.where({name}mask, {value}, {'0.0' if reduce.type.startswith('float') else 0})")
