"""The writer of an attention's scores: what is computed for each pair of a query and a key, as cheap as it can be.

Places of queries and keys are counted in 32 bits where that holds them, and a score is multiplied by a number's reciprocal instead of
divided: the product before has a larger rounding error.
"""

from __future__ import annotations

from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.writer import TritonWriter
from dvk.composer.ir.loops import READS, Argument, Instr, Kernel, Ref

WIDEST = (1 << 31) - 1
Range = tuple[int, int]


class ScoreWriter(TritonWriter):
    """See the module."""

    def __init__(self, kernel: Kernel, axes: list[TileAxis]):
        super().__init__(kernel, axes)
        self.narrow = counts_in_32_bits(kernel)

    def value(self, instr: Instr, policy: str = "") -> str:
        if instr.op == "iota" and self.narrow and instr.offset.vars:
            return self.tile.offset(instr.offset)
        if instr.op == "div" and instr.type == "float32":
            value, by = instr.args
            if isinstance(value, Ref) and not isinstance(by, Ref) and by:
                return f"{self.arg(value, instr.compute)} * {1 / by!r}"
        return super().value(instr, policy)


def counts_in_32_bits(kernel: Kernel) -> bool:
    """Integers that are computed from places alone fit in 32 bits."""
    known: dict[int, Range | None] = {}
    """Instruction → range of what is computed from places alone; None for what memory holds, in the type that it has there."""

    def of(value: Argument) -> Range | None:
        return known[value.id] if isinstance(value, Ref) else (int(value), int(value))

    for instr in kernel.instrs:
        if instr.type not in ("int64", "int32"):
            continue
        if instr.op in READS:
            known[instr.id] = None
            continue
        if instr.op.startswith("cast_") and instr.compute not in ("int64", "int32"):
            return False
        if any(isinstance(a, Ref) and a.id not in known for a in instr.args):
            return False
        parts = [of(a) for a in instr.args]
        if any(part is None for part in parts):
            known[instr.id] = None
            continue
        found = _range(instr, [part for part in parts if part is not None])
        if found is None or max(-found[0], found[1]) > WIDEST:
            return False
        known[instr.id] = found
    return True


def _range(instr: Instr, parts: list[Range]) -> Range | None:
    match instr.op, parts:
        case "iota", _:
            return instr.offset.span()
        case (("as" | "cast_int64" | "cast_int32"), [part]):
            return part
        case "neg", [(low, high)]:
            return -high, -low
        case "abs", [(low, high)]:
            return 0, max(-low, high)
        case "add", [(low, high), (least, most)]:
            return low + least, high + most
        case "sub", [(low, high), (least, most)]:
            return low - most, high - least
    return None
