"""The tile of one operand of a matmul in Triton."""

from __future__ import annotations

from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.writer import TritonWriter
from dvk.composer.ir.loops import Instr


class OperandTile(TritonWriter):
    """The writer of one operand's tile; values outside of k are 0 and add nothing."""

    def __init__(self, main: TritonWriter, axes: list[TileAxis], raw: int = -1):
        super().__init__(main.k, axes)
        self.tile.wide, self.tile.lines, self.tile.depth = (
            main.tile.wide,
            main.tile.lines,
            main.tile.depth,
        )
        self.params = main.params
        self.raw = raw
        """A load that is used unconverted: matrix units take fp16 and bf16 operands."""
        self.clamped: dict[int, list[str]] = {}
        """Gather → its indices, limited to what can be read: see `_Sums.clamp`."""

    def load(self, instr: Instr, policy: str = "") -> str:
        if instr.id != self.raw or instr.fill:
            return super().load(instr, policy)
        where, mask = self.guarded(instr)
        return f"tl.load({where}{f', {mask}, 0.0' if mask else ''})"

    def gather(self, instr: Instr) -> str:
        return self.gathered(instr) if instr.id == self.raw else super().gather(instr)

    def gathered(self, instr: Instr) -> str:
        if instr.id not in self.clamped:
            return super().gathered(instr)
        where, _ = self.access(f"a{instr.buffer}", instr.offset)
        indices = zip(self.clamped[instr.id], instr.places, strict=True)
        where += "".join(f" + {index} * {step}" for index, (step, _) in indices)
        mask = self.tile.mask(self.tile.reaching(instr.vars))
        return f"tl.load({where}{f', {mask}, 0.0' if mask else ''})"
