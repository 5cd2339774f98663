"""Parts common to the matmul forms in Triton: the loop over k, partial sums between two functions, and the epilogue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dvk.composer.codegen.analysis.tiles import Tile, TileAxis
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Instr, Kernel
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
    beside: tuple[Instr, ...] = ()
    """Sums of the rows alone, behind those of the terms: [sum][slice][row]."""

    @property
    def name(self) -> str:
        return f"part_{self.type}"

    @property
    def buffers(self) -> dict[str, int]:
        apart = sum(self.step(i.id) for i in self.beside)
        return {self.type: self.splits * (len(self.slots) * self.kernel.num_rows + apart)}

    def _along(self, reduce: int) -> tuple[Var, ...]:
        """Loop variables of a sum."""
        own = next((i.vars for i in self.beside if i.id == reduce), None)
        return tuple(v for v in self.kernel.rows if own is None or v in own)

    def step(self, reduce: int) -> int:
        """Elements of a slice."""
        return math.prod(v.size for v in self._along(reduce))

    def offset(self, reduce: int) -> Affine:
        """Offset of slice 0 of a sum's element."""
        coefs: dict[Var, int] = {}
        step = 1
        for var in reversed(self._along(reduce)):
            coefs[var] = step
            step *= var.size
        terms = len(self.slots) * self.kernel.num_rows
        before = self.slots[reduce] * self.kernel.num_rows if reduce in self.slots else terms
        for other in self.beside if reduce not in self.slots else ():
            if other.id == reduce:
                break
            before += self.step(other.id)
        return Affine.build(coefs, before * self.splits)

    def store(self, writer: TritonWriter, reduce: int, piece: str, value: str) -> None:
        """Write one slice's sum; all columns write the same value of a row's own sum."""
        offset = self.offset(reduce)
        along = writer.tile.reaching(offset.vars)
        mask = writer.tile.mask(along)
        at = f"{self.name} + {piece} * {self.step(reduce)} + {writer.tile.offset(offset)}"
        if not any(a.block > 1 for a in along):
            at += " + tl.zeros([1, 1], tl.int32)"
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
    for reduce in (*partials.slots, *(i.id for i in partials.beside)):
        offset, step = partials.offset(reduce), partials.step(reduce)
        mask = ", xmask" if axis.masked and offset.vars else ""
        tile.put(f"v{reduce} = tl.load({partials.name} + {tile.offset(offset)}{mask})")
        tile.enter(f"for piece in range(1, {partials.splits}):")
        tile.put(
            f"v{reduce} += tl.load({partials.name} + piece * {step} + {tile.offset(offset)}{mask})"
        )
        tile.leave()
    behind(writer, set())
    return TritonFunction(
        f"{kernel.name}_1",
        *writer.source(f"{kernel.name}_1", [partials.name]),
        axis.blocks,
        max(block // 128, 1),
    )
