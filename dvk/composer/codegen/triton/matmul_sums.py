"""Parts common to the matmul forms in Triton: the loop over k, partial sums between two functions, and the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dvk.composer.codegen.analysis.tiles import Tile, TileAxis
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.symint import leaves_rest, power

FINISH_BLOCK = 512
"""Elements of the result whose slices one program adds up."""


@dataclass(frozen=True)
class MatmulPartials:
    """Partial sums between the two functions: [term][slice][element of the result]."""

    kernel: Kernel
    splits: int
    slots: Mapping[int, int]
    """Reduction → index of its term."""
    type: str

    @property
    def name(self) -> str:
        return f"part_{self.type}"

    @property
    def buffers(self) -> dict[str, int]:
        return {self.type: len(self.slots) * self.splits * self.kernel.num_rows}

    def offset(self, reduce: int) -> Affine:
        """Offset of slice 0 of a term's element."""
        coefs: dict[Var, int] = {}
        step = 1
        for var in reversed(self.kernel.rows):
            coefs[var] = step
            step *= var.size
        return Affine.build(coefs, self.slots[reduce] * self.splits * self.kernel.num_rows)

    def store(self, writer: TritonWriter, reduce: int, piece: str, value: str) -> None:
        """Write one slice's sum."""
        offset = self.offset(reduce)
        mask = writer.tile.mask(writer.tile.reaching(offset.vars))
        at = f"{self.name} + {piece} * {self.kernel.num_rows} + {writer.tile.offset(offset)}"
        writer.tile.put(f"tl.store({at}, {value}{', ' + mask if mask else ''})")


def open_loop(tile: Tile, length: int, depth: int, piece: str, splits: int, stages: int) -> str:
    """Open the loop over a slice of k; returns its first element as text, `0` without a loop."""
    blocks = -(-length // depth)
    if splits > 1:
        chunk = -(-blocks // splits) * depth
        end = f"{piece} * {chunk} + {chunk}"
        end = f"tl.minimum({end}, {length})" if chunk * splits > length else end
        tile.enter(f"for r0 in tl.range({piece} * {chunk}, {end}, {depth}, num_stages={stages}):")
        return "r0"
    if blocks > 1:
        tile.enter(f"for r0 in tl.range(0, {length!r}, {depth}, num_stages={stages}):")
        return "r0"
    return "0"


def behind(writer: TritonWriter, given: set[int]) -> None:
    """Write the epilogue of the sums, and the stores; `given` are declared already."""
    for instr in writer.closure([s.value for s in writer.k.stores], row_level=True):
        if not instr.op.startswith("reduce_") and instr.id not in given:
            writer.emit(instr)
    for store in writer.k.stores:
        writer.store(store)


def finish(kernel: Kernel, partials: MatmulPartials) -> TritonFunction:
    """Add up the slices of every element in order, and apply the epilogue."""
    total = kernel.num_rows
    block = min(power(total), FINISH_BLOCK)
    axis = TileAxis(
        "x", tuple(v for v in kernel.rows if v.size > 1), block, leaves_rest(total, block)
    )
    writer = TritonWriter(kernel, [axis])
    tile = writer.tile
    tile.place(axis, tile.programs([(axis.program, axis.blocks)])[axis.program])
    for reduce in partials.slots:
        offset = partials.offset(reduce)
        mask = ", xmask" if axis.masked else ""
        tile.put(f"v{reduce} = tl.load({partials.name} + {tile.offset(offset)}{mask})")
        tile.enter(f"for piece in range(1, {partials.splits}):")
        tile.put(
            f"v{reduce} += tl.load({partials.name} + piece * {total} + {tile.offset(offset)}{mask})"
        )
        tile.leave()
    behind(writer, set())
    return TritonFunction(
        f"{kernel.name}_1",
        *writer.source(f"{kernel.name}_1", [partials.name]),
        axis.blocks,
        max(block // 128, 1),
    )
