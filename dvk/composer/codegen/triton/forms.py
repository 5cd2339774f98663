"""Single-function forms of a Triton kernel: pointwise at once or grid-stride, whole rows in registers, loops over each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from dvk.composer.codegen.analysis.online import VariancePair
from dvk.composer.codegen.analysis.tiles import TileAxis, narrow_axes
from dvk.composer.codegen.triton.moments import MomentsPair
from dvk.composer.codegen.triton.scalar import TYPES, identity
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.loops import Instr, Kernel, Ref
from dvk.composer.ir.nodes import BYTES
from dvk.composer.ir.schedules.triton import (
    TritonFlat,
    TritonLooped,
    TritonPersistent,
    TritonStride,
    TritonTile,
)
from dvk.composer.ir.symint import SymbolicSize


def pointwise(
    kernel: Kernel, schedule: TritonFlat | TritonTile, axes: list[TileAxis]
) -> TritonFunction:
    """Write all instructions once, all stores at the end; where a mask would part the lanes of a thread, whole blocks go without."""
    *_, axis = axes
    if isinstance(schedule, TritonFlat) and parts_lanes(kernel, axis):
        writer = TritonWriter(kernel, [replace(axis, masked=False)])
        _place(writer, writer.tile.axes)
        writer.tile.enter(f"if tl.program_id(0) < {axis.size // axis.block}:")
        _elements(writer)
        writer.tile.leave()
        writer.tile.enter("else:")
        writer.walk(axis)
        writer.tile.put_mask(axis)
        _elements(writer)
        writer.tile.leave()
        return _function(writer, schedule.warps, axes)
    writer = TritonWriter(kernel, axes)
    _place(writer, axes)
    _elements(writer)
    return _function(writer, schedule.warps, axes)


def _elements(writer: TritonWriter) -> None:
    for instr in writer.k.instrs:
        writer.emit(instr)
    for store in writer.k.stores:
        writer.store(store)


def parts_lanes(kernel: Kernel, axis: TileAxis) -> bool:
    """The end of an axis lies within the 16 bytes that a thread would access at once: under its mask, each element is an access.

    Of 280 million elements (H200) that costs float32 15 %, and two-byte types 3.7x of the time, for their stores above all.
    """
    if not axis.masked or kernel.size_arguments:
        return False
    least = min((BYTES.get(b.dtype, 4) for b in (*kernel.inputs, *kernel.outputs)), default=4)
    return axis.size > axis.block and axis.size % (16 // least) != 0


def persistent(kernel: Kernel, schedule: TritonPersistent, axes: list[TileAxis]) -> TritonFunction:
    """Keep the whole row in registers: every input is read once."""
    writer = TritonWriter(kernel, axes, online=schedule.online == "moments" and "moments")
    *rows, row = axes
    _place(writer, rows)
    writer.tile.define(row, "0")
    whole_rows(writer, row, kernel.instrs)
    writer.store_all(kernel.stores)
    return _function(writer, schedule.warps, rows)


def whole_rows(writer: TritonWriter, row: TileAxis, instrs: Sequence[Instr]) -> None:
    """Emit those instructions of a kernel with rows in registers that are needed."""
    kernel, mask = writer.k, writer.tile.mask([row])
    looped_over = [r for stage in range(kernel.num_stages) for r in writer.looped_reduces(stage)]
    needed = writer.closure(
        [*writer.operands(looped_over), *(s.value for s in kernel.stores)], row_level=False
    )
    for instr in instrs:
        if not kernel.is_row_value(instr) and instr not in needed:
            continue
        if not instr.op.startswith("reduce_"):
            writer.emit(instr)
        elif writer.is_local(instr):
            writer.local_reduce(instr)
        elif isinstance(writer.pair, MomentsPair) and instr in (
            writer.pair.first,
            writer.pair.second,
        ):
            _moments(writer, writer.pair, instr, mask)
        else:
            operand = writer.masked_operand(instr, mask)
            if instr.op == "reduce_prod" and not mask:
                # The operand may be constant along the row; a product needs all of its copies.
                operand = f"{operand} * tl.full({writer.tile.shape([row])}, 1, {TYPES[instr.type]})"
            writer.tile.put(f"v{instr.id} = {writer.fold(instr, operand)}")


def _moments(writer: TritonWriter, pair: MomentsPair, instr: Instr, mask: str) -> None:
    """One of the two sums of a row in registers."""
    if instr is pair.first:
        if pair.shifts:
            _shift(writer, pair)
        gap = pair.gap(writer.arg(instr.args[0], instr.type))
        writer.tile.put(f"gap{instr.id} = {f'tl.where({mask}, {gap}, 0.0)' if mask else gap}")
    gaps = f"gap{pair.first.id}"
    folded = writer.fold(instr, gaps if instr is pair.first else f"{gaps} * {gaps}")
    length = str(writer.k.row_length)
    for line in pair.finish(instr, folded, length):
        writer.tile.put(line)
    if instr is pair.second:
        writer.tile.enter(f"if {pair.is_far(length, len(writer.tile.vectors) == 2)}:")
        writer.tile.put(f"away = {pair.around(gaps, mask, length)}")
        writer.tile.put(f"v{instr.id} = {writer.fold(instr, 'away')}")
        writer.tile.leave()


def strided(kernel: Kernel, schedule: TritonStride, axes: list[TileAxis]) -> TritonFunction:
    """Write a grid-stride loop: a fixed number of programs covers all elements, all instructions once per element."""
    writer = TritonWriter(kernel, axes)
    (axis,) = axes
    named = isinstance(axis.blocks, SymbolicSize)
    programs = schedule.programs if named else min(schedule.programs, axis.blocks)
    step = f"{programs}*{axis.block}" if named else repr(programs * axis.block)
    start = f"tl.program_id(0){'.to(tl.int64)' if writer.tile.wide else ''} * {axis.block}"
    writer.tile.enter(f"for first in range({start}, {axis.size!r}, {step}):")
    writer.tile.define(axis, "first")
    _elements(writer)
    writer.tile.leave()
    return TritonFunction(kernel.name, *writer.source(kernel.name), programs, schedule.warps)


def looped(kernel: Kernel, schedule: TritonLooped, axes: list[TileAxis]) -> TritonFunction:
    """Write one pass over the row per stage, with lane-wise accumulators."""
    writer = TritonWriter(kernel, axes, online=schedule.online)
    *rows, row = axes
    _place(writer, rows)
    passes = [
        s for s in range(kernel.num_stages) if writer.looped_reduces(s) or writer.element_stores(s)
    ]
    done: set[int] = set()
    for stage in range(kernel.num_stages):
        for instr in kernel.instrs:
            if not kernel.is_row_value(instr) or instr.id in done or instr.stage > stage:
                continue
            if not instr.op.startswith("reduce_"):
                writer.emit(instr)
            elif writer.is_local(instr):
                writer.local_reduce(instr)
            done.add(instr.id)
        if stage in passes:
            # Data that a later pass reads again should stay in L2; the last reader evicts it.
            hints = schedule.evict and len(passes) > 1
            policy = "" if not hints else "evict_first" if stage == passes[-1] else "evict_last"
            row_pass(writer, stage, row, "0", row.size, policy)
    writer.store_all(writer.row_stores())
    return _function(writer, schedule.warps, rows)


def row_pass(
    writer: TritonWriter, stage: int, row: TileAxis, start: str, length: int, policy: str = ""
) -> None:
    """Reduce and store over `length` elements of the row from `start`."""
    tile = writer.tile
    reduces, stores = writer.looped_reduces(stage), writer.element_stores(stage)
    operands = writer.operands(reduces)
    if isinstance(writer.pair, MomentsPair) and writer.pair.shifts and writer.pair.first in reduces:
        _shift(writer, writer.pair)
    for reduce in reduces:
        along = [a for a in tile.vectors if a is row or a in writer.axes_of(reduce.id)]
        tile.put(
            f"acc{reduce.id} = tl.full({tile.shape(along)}, {identity(reduce)}, {TYPES[reduce.type]})"
        )
    loop = length > row.block or isinstance(length, SymbolicSize)
    targets = [*operands, *(s.value for s in stores)]

    def block(axis: TileAxis, offset: str, tiles: str) -> None:
        # An axis with an origin counts from there.
        parts = [p for p in ("" if axis.origin else start, offset) if p not in ("", "0")]
        tile.define(axis, " + ".join(parts) or "0")
        for instr in writer.closure(targets, row_level=False):
            writer.emit(instr, policy)
        writer.accumulate(reduces, tile.mask([axis]), tiles)
        for store in stores:
            writer.store(store)

    if not loop:
        block(row, "0", "1")
    elif start != "0" and not writer.k.rows and parts_lanes(writer.k, row):
        _whole_blocks(writer, row, start, length, block)
    else:
        tile.enter(f"for r0 in range(0, {length!r}, {row.block!r}):")
        block(row, "r0", f"r0 // {row.block} + 1")
        tile.leave()
    behind = _counts(writer, reduces, row, start, length)
    for reduce in reduces:
        writer.finish(reduce, length=behind)
    if isinstance(writer.pair, MomentsPair) and writer.pair.second in reduces:
        _again(writer, writer.pair, row)


def _again(writer: TritonWriter, pair: MomentsPair, row: TileAxis) -> None:
    """Emit a second pass for the squares, around the mean, which rows take whose first element is far from it."""
    tile, length, source = writer.tile, str(writer.k.row_length), pair.first.args[0]
    assert isinstance(source, Ref)
    squares = f"again{pair.second.id}"
    tile.enter(f"if {pair.is_far(length, len(tile.vectors) == 2)}:")
    tile.put(f"{squares} = tl.zeros({tile.shape(tile.vectors)}, tl.float32)")
    tile.enter(f"for r0 in range(0, {writer.k.row_length!r}, {row.block!r}):")
    tile.define(row, "r0")
    for instr in writer.closure([source.id], row_level=False):
        writer.emit(instr)
    gap = f"({pair.gap(writer.arg(source, pair.first.type))})"
    tile.put(f"{squares} += {pair.around(gap, tile.mask([row]), length)}")
    tile.leave()
    tile.put(f"v{pair.second.id} = {writer.fold(pair.second, squares)}")
    tile.leave()


def _whole_blocks(
    writer: TritonWriter,
    row: TileAxis,
    start: str,
    length: int,
    block: Callable[[TileAxis, str, str], None],
) -> None:
    """Emit a loop over a slice's whole blocks, without a mask, and what is left."""
    tile = writer.tile
    whole = replace(row, masked=False)
    if not row.origin:
        tile.put(f"left = tl.minimum({row.size} - {start}, {length})")
    tile.put(f"whole = tl.maximum(left, 0) // {row.block} * {row.block}")
    writer.walk(whole)
    tile.enter(f"for r0 in range(0, whole, {row.block}):")
    block(whole, "r0", f"r0 // {row.block} + 1")
    tile.leave()
    writer.walk(row)
    tile.enter("if whole < left:")
    block(row, "whole", f"whole // {row.block} + 1")
    tile.leave()


def _counts(
    writer: TritonWriter, reduces: list[Instr], row: TileAxis, start: str, length: int
) -> str:
    """Declare how many elements each lane accumulated (for a variance) and return their total."""
    if not isinstance(writer.pair, VariancePair) or writer.pair.first not in reduces:
        return ""
    tile = writer.tile
    if start == "0":
        behind = str(length)
    elif row.masked:
        tile.put(f"behind = tl.maximum(tl.minimum({row.size} - {start}, {length}), 0)")
        behind = "behind"
    else:
        behind = str(length)
    if row.masked:
        tile.put(
            f"count = tl.maximum(({behind} - {tile.lanes(row)} + {row.block - 1}) // {row.block}, 0)"
        )
    else:
        tile.put(f"count = {length // row.block}")
    return f"tl.maximum({behind}, 1)" if behind == "behind" else behind


def _place(writer: TritonWriter, axes: list[TileAxis]) -> None:
    if writer.tile.wide:
        writer.tile.narrow = narrow_axes(writer.k, writer.tile.axes)
    digits = writer.tile.programs([(a.program, a.blocks) for a in axes])
    for axis in axes:
        writer.tile.place(axis, digits[axis.program])


def _function(writer: TritonWriter, warps: int, axes: list[TileAxis]) -> TritonFunction:
    grid = math.prod(a.blocks for a in axes)
    return TritonFunction(writer.k.name, *writer.source(writer.k.name), grid, warps)


def _shift(writer: TritonWriter, pair: MomentsPair) -> None:
    """Emit `k…`: the operand's value at the start of the row."""
    source = pair.first.args[0]
    assert isinstance(source, Ref)
    tile, row = writer.tile, writer.tile.axes[-1]
    # Without its variables the row's axis is at its first element.
    writer.walk(replace(row, vars=(), block=1, masked=False))
    for instr in writer.closure([source.id], row_level=False):
        text = writer.value(instr)
        writer.names[instr.id] = f"k{pair.first.id}_{instr.id}"
        tile.put(f"{writer.names[instr.id]} = {text}")
    tile.put(f"k{pair.first.id} = {writer.names[source.id]}")
    writer.names.clear()
    writer.walk(row)
