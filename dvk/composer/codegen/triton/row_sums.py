"""Kernels that walk blocks of rows, with whole rows in registers, and add the rows of a block up (`fusion.column_sums`)."""

from __future__ import annotations

from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.forms import whole_rows
from dvk.composer.codegen.triton.scalar import TYPES
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.loops import Kernel, Ref, Store
from dvk.composer.ir.schedules.triton import TritonRowSums, TritonSchedule
from dvk.composer.ir.symint import power
from dvk.target import Gpu

TILE = 1024
"""Elements of a tile below which a program takes several rows at a time."""


def schedules(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    """The alternatives worth measuring, the best guess first."""
    del gpu
    whole, size = power(kernel.row_length), kernel.rows_of_block
    rows = max(1, min(TILE // whole, power(size)))
    rows = rows if size % rows == 0 else 1
    warps = min(max(rows * whole // 256, 2), 16)
    sizes = [(rows, warps), (rows, max(warps // 2, 1)), (rows, min(2 * warps, 32))]
    if size % (2 * rows) == 0 and 2 * rows * whole <= 4 * TILE:
        sizes += [(2 * rows, warps), (2 * rows, min(2 * warps, 16))]
    made = [TritonRowSums(xblock=x, warps=w) for x, w in sizes]
    return list(dict.fromkeys(made))


def blocks_of_rows(kernel: Kernel, schedule: TritonRowSums, axes: list[TileAxis]) -> TritonFunction:
    """Write the loop over the rows of a block; what all rows share is read before it."""
    writer = TritonWriter(kernel, axes)
    tile, (rows, row) = writer.tile, axes
    size = kernel.rows_of_block
    tile.put("block = tl.program_id(0)" + (".to(tl.int64)" if tile.wide else ""))
    tile.define(row, "0")
    shared = [
        i
        for i in kernel.instrs
        if not i.vars & frozenset(kernel.rows) and i.stage == 0 and not i.op.startswith("reduce_")
    ]
    whole_rows(writer, row, shared)
    folded = [s for s in kernel.stores if s.folded]
    along = tile.shape([row])
    for store in folded:
        kind = TYPES[kernel.outputs[store.buffer].dtype]
        tile.put(f"sum{store.buffer} = tl.zeros({along}, {kind})")
    stop = f"block * {size} + {size}"
    if kernel.num_rows % size:
        stop = f"tl.minimum({stop}, {kernel.num_rows})"
    step = f", {rows.block}" if rows.block > 1 else ""
    name = "x0" if rows.block > 1 else rows.name
    tile.enter(f"for {name} in range(block * {size}, {stop}{step}):")
    if rows.block > 1:
        tile.define(rows, name)
    whole_rows(writer, row, [i for i in kernel.instrs if i not in shared])
    for store in kernel.stores:
        if store.folded:
            _add(writer, store, axes)
        else:
            writer.store(store)
    tile.leave()
    for store in folded:
        pointer = f"o{store.buffer}"
        writer.params.add(pointer)
        where = f"{pointer} + block * {kernel.outputs[store.buffer].shape[1]} + {tile.offset(store.offset)}"
        mask = f", {row.name}mask" if row.masked else ""
        tile.put(f"tl.store({where}, sum{store.buffer}{mask})")
    return TritonFunction(
        kernel.name, *writer.source(kernel.name), -(-kernel.num_rows // size), schedule.warps
    )


def _add(writer: TritonWriter, store: Store, axes: list[TileAxis]) -> None:
    """Add the rows of the tile to a sum. Lanes behind the row's end are never stored."""
    kernel, rows = writer.k, axes[0]
    value = writer.arg(Ref(store.value), kernel.outputs[store.buffer].dtype)
    if rows.block > 1:
        value = f"tl.broadcast_to({value}, {writer.tile.shape(axes)})"
        if rows.masked:
            value = f"tl.where({rows.name}mask, {value}, 0.0)"
        value = f"tl.sum({value}, 0, keep_dims=True)"
    writer.tile.put(f"sum{store.buffer} += {value}")
