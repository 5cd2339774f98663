"""Reductions over short windows in Triton: each lane loops over the window of one output.

Neighbouring windows overlap in the L1 cache. Long windows may also be rows of a tile (`TritonPersistent`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.scalar import TYPES, identity
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.loops import READS, Kernel
from dvk.composer.ir.schedules.triton import (
    TritonPersistent,
    TritonSchedule,
    TritonWindow,
    TritonWindowTile,
)
from dvk.composer.ir.symint import power
from dvk.target import Gpu

MAX_UNROLLED = 32
"""Maximum window positions to unroll: more are slow to compile."""
MANY = 1 << 14
"""Outputs for each multiprocessor from which programs are large."""
MIN_TILE = 32
"""Contiguous outputs that fill a run of a tile."""


def schedules(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    """The alternatives worth measuring, the best guess first."""
    total = kernel.num_rows
    unroll = kernel.row_length <= MAX_UNROLLED
    block = min(max(power(total // (8 * gpu.sms)), 64), 256)
    shapes = (
        (block, block // 64),
        (2 * block, block // 32),
        (block, block // 32),
        (max(block // 2, 32), block // 128),
    )
    result: list[TritonSchedule] = [_flat(b, max(warps, 1), unroll) for b, warps in shapes]
    if unroll:
        result.insert(2, _flat(block, max(block // 64, 1), False))
    lane = next((v.size for v in reversed(kernel.rows) if v.size > 1), 1)
    if lane >= MIN_TILE and lane < total:
        x = min(power(lane), 256)
        result[1:1] = [
            TritonWindowTile(yblock=y, xblock=x, unroll=unroll, warps=max(y * x // 64, 1))
            for y in (max(block // x, 1), max(2 * block // x, 1))
        ]
        if total >= MANY * gpu.sms and _is_weighted(kernel):
            # Windows share the elements that they have in common in the L1 cache of one program. Without weights that costs more than it
            # saves: 3x3 max pooling with stride 2 of 28 million elements took 0.137 ms on an H200, and 0.045 by a flat index.
            result[:0] = [
                TritonWindowTile(yblock=max(n // x, 1), xblock=x, unroll=unroll, warps=warps)
                for n, warps in ((1024, 4), (2048, 8))
            ]
    if 16 <= kernel.row_length:
        x = max(512 // power(kernel.row_length), 1)
        result.append(TritonPersistent(xblock=x, warps=4))
    return result


def _is_weighted(kernel: Kernel) -> bool:
    """Whether several values are read at each position of a window, as in convolutions."""
    return sum(i.op in READS and not kernel.is_row_value(i) for i in kernel.instrs) > 1


def _flat(block: int, warps: int, unroll: bool) -> TritonWindow:
    return TritonWindow(block=block, unroll=unroll, warps=warps)


def window(
    kernel: Kernel, schedule: TritonWindow | TritonWindowTile, axes: list[TileAxis]
) -> TritonFunction:
    """Write one program per block of outputs; axis `r` is the position in the window, a number."""
    *rows, row = axes
    writer = TritonWriter(kernel, [*rows, row])
    tile = writer.tile
    digits = tile.programs([(a.program, a.blocks) for a in rows])
    for axis in rows:
        tile.place(axis, digits[axis.program])
    reduces = writer.looped_reduces(0)
    done: set[int] = set()
    for instr in kernel.instrs:
        if kernel.is_row_value(instr) and instr.stage == 0:
            writer.emit(instr)
            done.add(instr.id)
    needed = writer.closure(writer.operands(reduces), row_level=False)
    # Compute the start of an output's window once: without its variables the row's axis is at position 0.
    tile.axes[-1] = replace(row, vars=())
    for instr in needed:
        for part in (instr.offset, *(p for p, _ in instr.bounds)):
            tile.offset(part)
    tile.axes[-1] = row
    for reduce in reduces:
        tile.put(
            f"acc{reduce.id} = tl.full({tile.shape(writer.axes_of(reduce.id))}, {identity(reduce)}, {TYPES[reduce.type]})"
        )
    loop = "tl.static_range" if schedule.unroll else "range"
    tile.enter(f"for r in {loop}(0, {kernel.row_length!r}):")
    for instr in needed:
        writer.emit(instr)
    writer.accumulate(reduces, "", "")
    tile.leave()
    for reduce in reduces:
        tile.put(f"v{reduce.id} = acc{reduce.id}")
        done.add(reduce.id)
    for instr in kernel.instrs:
        if kernel.is_row_value(instr) and instr.id not in done:
            writer.local_reduce(instr) if instr.op.startswith("reduce_") else writer.emit(instr)
    for store in kernel.stores:
        writer.store(store)
    return TritonFunction(
        kernel.name, *writer.source(kernel.name), math.prod(a.blocks for a in rows), schedule.warps
    )
