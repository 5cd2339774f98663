"""Split reductions: few long rows, each cut into slices that many programs reduce in parallel.

One function per stage. Each writes a partial result per slice; the next first combines the partial results of its row (a few hundred values
from L2), then makes its own pass. One small last function finishes row-level results that no pass follows. The layout of partial results is
[slot][row][slice], or [slot][slice][row] if rows are fastest in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dvk.composer.codegen.analysis.online import VariancePair
from dvk.composer.codegen.analysis.tiles import NARROW, TileAxis, narrow_axes
from dvk.composer.codegen.triton.forms import row_pass
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Kernel, Store
from dvk.composer.ir.schedules.triton import TritonSplit
from dvk.composer.ir.symint import SymbolicSize, leaves_rest, power


@dataclass(frozen=True)
class SplitPartials:
    """The layout of partial results: one buffer per type, `slots` indexes the reductions inside it."""

    kernel: Kernel
    splits: int
    chunk: int
    """Elements of a slice."""
    slots: Mapping[int, tuple[str, int]]

    @property
    def buffers(self) -> dict[str, int]:
        """Type → elements."""
        counts: dict[str, int] = {}
        for kind, slot in self.slots.values():
            counts[kind] = max(counts.get(kind, 0), (slot + 1) * self.kernel.num_rows * self.splits)
        return counts

    def row_stride(self) -> int:
        return 1 if self.kernel.family == "column" else self.splits

    def piece_stride(self) -> int:
        return self.kernel.num_rows if self.kernel.family == "column" else 1

    def place(self, reduce: int) -> tuple[str, Affine]:
        """Parameter name and the offset of slice 0 of the row."""
        kind, slot = self.slots[reduce]
        coefs: dict[Var, int] = {}
        step = self.row_stride()
        for var in reversed(self.kernel.rows):
            coefs[var] = step
            step *= var.size
        return f"part_{kind}", Affine.build(coefs, slot * self.kernel.num_rows * self.splits)


def split(
    kernel: Kernel, schedule: TritonSplit, axes: list[TileAxis]
) -> tuple[list[TritonFunction], dict[str, int]]:
    """The functions of a split kernel in launch order, and the partial buffers (type → elements)."""
    probe = TritonWriter(kernel, axes, online=schedule.online)
    counts: dict[str, int] = {}
    slots: dict[int, tuple[str, int]] = {}
    stages = []
    for stage in range(kernel.num_stages):
        reduces = probe.looped_reduces(stage)
        for reduce in reduces:
            slots[reduce.id] = (reduce.type, counts.setdefault(reduce.type, 0))
            counts[reduce.type] += 1
        if reduces or probe.element_stores(stage):
            stages.append(stage)
    row = axes[-1]
    chunk = -(-row.blocks // schedule.splits) * row.block
    partials = SplitPartials(kernel, schedule.splits, chunk, slots)
    pending = probe.row_stores()
    functions: list[TritonFunction] = []
    for stage in stages:
        ready = [s for s in pending if kernel.instrs[s.value].stage <= stage]
        pending = [s for s in pending if s not in ready]
        functions.append(
            _pass(kernel, schedule, axes, partials, stage, ready, f"{kernel.name}_{len(functions)}")
        )
    if pending:
        functions.append(
            _finish(kernel, schedule, partials, pending, f"{kernel.name}_{len(functions)}")
        )
    return functions, partials.buffers


def _pass(
    kernel: Kernel,
    schedule: TritonSplit,
    axes: list[TileAxis],
    partials: SplitPartials,
    stage: int,
    row_stores: list[Store],
    name: str,
) -> TritonFunction:
    """One stage over all slices of all rows."""
    *rows, row = axes
    chunk = partials.chunk
    row = TileAxis("r", row.vars, row.block, leaves_rest(row.size, chunk * partials.splits))
    writer = TritonWriter(kernel, [*rows, row], online=schedule.online)
    writer.in_pieces = True
    tile = writer.tile
    if tile.wide:
        # A row of more elements than 32 bits count: a slice counts its own.
        row.origin = "start" if row.size >= NARROW and not kernel.size_arguments else ""
        narrow = narrow_axes(kernel, tile.axes, chunk)
        tile.narrow = narrow | {"piece"} if narrow else narrow
    digits = tile.programs(
        [*((a.program, a.blocks) for a in rows), ("piece", partials.splits)], named=True
    )
    piece = digits["piece"]
    for axis in rows:
        tile.place(axis, digits[axis.program])
    reduces, stores = writer.looped_reduces(stage), writer.element_stores(stage)
    used = _row_values(
        writer, partials, [*writer.operands(reduces), *(s.value for s in (*stores, *row_stores))]
    )
    start = piece if chunk == 1 else f"{piece} * {chunk}"
    if row.origin:
        start = f"{piece}.to(tl.int64) * {chunk}"
    if chunk > row.block or row.origin or isinstance(chunk, SymbolicSize):
        tile.put(f"start = {start}")
        start = "start"
    if row.origin and row.masked:
        tile.put(f"left = tl.minimum({row.size} - start, {chunk}).to(tl.int32)")
    row_pass(writer, stage, row, start, chunk)
    for reduce in reduces:
        # A slice beyond the row's end has only identities, and so contributes the identity.
        buffer, offset = partials.place(reduce.id)
        used.append(buffer)
        parts = [
            t for t in (tile.offset(offset), _times(piece, partials.piece_stride())) if t != "0"
        ]
        mask = tile.mask(tile.reaching(offset.vars))
        tile.put(
            f"tl.store({' + '.join([buffer, *parts])}, v{reduce.id}{', ' + mask if mask else ''})"
        )
    writer.store_all(row_stores, f"({piece} == 0)")
    grid = partials.splits
    for axis in rows:
        grid *= axis.blocks
    return TritonFunction(name, *writer.source(name, _unique(used)), grid, schedule.warps)


def _finish(
    kernel: Kernel, schedule: TritonSplit, partials: SplitPartials, stores: list[Store], name: str
) -> TritonFunction:
    """Row-level work after the last pass."""
    rows = tuple(v for v in kernel.rows if v.size > 1)
    block = (
        max(1, min(power(kernel.num_rows), 2048 // partials.splits)) if kernel.num_rows > 1 else 1
    )
    axis = TileAxis("x", rows, block, leaves_rest(kernel.num_rows, block))
    writer = TritonWriter(
        kernel, [axis, TileAxis("s", (), partials.splits)], online=schedule.online
    )
    writer.tile.place(axis, writer.tile.programs([(axis.program, axis.blocks)])[axis.program])
    used = _row_values(writer, partials, [s.value for s in stores])
    writer.store_all(stores)
    warps = min(max(block * partials.splits // 256, 1), 8)
    return TritonFunction(name, *writer.source(name, _unique(used)), axis.blocks, warps)


def _row_values(writer: TritonWriter, partials: SplitPartials, targets: list[int]) -> list[str]:
    """Emit the row-level values the targets need, reductions from their partial results; returns the buffers read."""
    used: list[str] = []
    kernel, tile = writer.k, writer.tile
    lanes = f"tl.arange(0, {partials.splits})" + ("[None, :]" if len(tile.vectors) == 2 else "")
    for instr in writer.closure(targets, row_level=True):
        if not instr.op.startswith("reduce_"):
            writer.emit(instr)
        elif writer.is_local(instr):
            writer.local_reduce(instr)
        else:
            buffer, offset = partials.place(instr.id)
            used.append(buffer)
            parts = [
                t for t in (tile.offset(offset), _times(lanes, partials.piece_stride())) if t != "0"
            ]
            mask = tile.mask(tile.reaching(offset.vars))
            tile.put(
                f"p{instr.id} = tl.load({buffer} + ({' + '.join(parts)}){', ' + mask if mask else ''})"
            )
            if isinstance(writer.pair, VariancePair) and instr is writer.pair.first:
                left = f"{kernel.row_length} - {lanes} * {partials.chunk}"
                tile.put(f"count = tl.maximum(tl.minimum({left}, {partials.chunk}), 0)")
            writer.finish(instr, "p", str(kernel.row_length))
    return used


def _times(text: str, factor: int) -> str:
    return text if factor == 1 or text == "0" else f"{text} * {factor}"


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
