"""Scales of blocks of k in matmuls: matrix units multiply a block of codes, and its scales multiply that before it is added in float32."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.operand_tile import OperandTile
from dvk.composer.codegen.triton.writer import TritonWriter
from dvk.composer.ir.loops import Instr
from dvk.composer.ir.matmul_form import MatmulForm, MatmulTerm


@dataclass(frozen=True)
class BlockScales:
    """The scales of one tile of the result."""

    writer: TritonWriter
    form: MatmulForm
    sides: tuple[TileAxis, ...]
    """Axes of the tile's rows and columns."""

    @property
    def scales(self) -> list[Instr]:
        return [scale for term in self.form.terms for scale in term.scales]

    def before(self) -> None:
        """Declare the blocks of rows or columns that hold the whole tile: `yb`, `xb`."""
        for axis in filter(self._keeps_to_block, self.sides):
            start = f"{axis.program} * {axis.block}" if axis.blocks > 1 else "0"
            self.writer.tile.put(f"{axis.name}b = {start} // {axis.vars[-1].size}")

    def emit(self, around: Sequence[TileAxis], given: Collection[int]) -> None:
        """Declare the scales of a block of k.

        Args:
            around: axes of an operand, with those of the batch and of the block's place.
            given: values that are declared already.
        """
        outer = [a for a in around if a.name in ("z", "place")]
        axes = [*outer, *(part for axis in self.sides for part in self._parts(axis))]
        side = OperandTile(self.writer, axes)
        for row_level in (True, False):
            for instr in side.closure([s.id for s in self.scales], row_level):
                if instr.id not in given:
                    side.emit(instr)

    def added(self, term: MatmulTerm, product: str) -> str:
        """What a block adds to the sum of a term."""
        return f"{product} * ({' * '.join(f'v{scale.id}' for scale in term.scales)})"

    def total(self, term: MatmulTerm) -> str:
        """The sum of the tile; without rows, all of its rows are equal."""
        acc = f"acc{term.reduce.id}"
        if self.form.rows:
            return acc
        return f"tl.sum(tl.where(ymask, {acc}, 0.0), 0, keep_dims=True)"

    def _keeps_to_block(self, axis: TileAxis) -> bool:
        """All rows or columns of a tile have the same scale in a block of k, which is then one load."""
        used = {var for scale in self.scales for var in scale.vars}
        if not used.intersection(axis.vars) or axis.vars[-1] in used:
            return False
        return axis.vars[-1].size % axis.block == 0

    def _parts(self, axis: TileAxis) -> list[TileAxis]:
        if not self._keeps_to_block(axis):
            return [axis]
        inside = TileAxis(axis.name, axis.vars[-1:], axis.block, axis.masked)
        return [inside, TileAxis(f"{axis.name}b", axis.vars[:-1])]
