"""Scans in Triton: a whole row at once, a row block by block with a running value, long rows in slices, columns step by step.

Running values are float32, as in torch on a GPU.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.triton.scalar import FLOAT, TYPES, identity, scan_joiner
from dvk.composer.codegen.triton.writer import TritonFunction, TritonWriter
from dvk.composer.ir.loops import Instr, Kernel, Ref
from dvk.composer.ir.primitives import reduction
from dvk.composer.ir.schedules.triton import (
    TritonScan,
    TritonScanLoop,
    TritonScanSplit,
    TritonScanWalk,
    TritonSchedule,
)
from dvk.composer.ir.symint import leaves_rest, power
from dvk.target import Gpu

MAX_WHOLE = 8192
"""Longest row that is scanned at once."""
THREADS = 1024
"""Threads of a multiprocessor that hide the latency of its loads: half of what it holds."""
ScanSchedule = TritonScan | TritonScanLoop | TritonScanWalk | TritonScanSplit


def schedules(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    """The alternatives worth measuring, the best guess first."""
    return (_across if kernel.family == "scan_column" else _along)(kernel, gpu)


def _along(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    rows, length = kernel.num_rows, kernel.row_length
    whole = power(length)
    options: list[TritonSchedule] = []
    if whole <= MAX_WHOLE:
        x = 1
        while x * whole < 1024 and rows // (2 * x) >= 2 * gpu.sms:
            x *= 2
        warps = min(max(x * whole // 512, 1), 8)
        options = [
            TritonScan(xblock=x, warps=w)
            for w in dict.fromkeys((warps, min(2 * warps, 16), max(warps // 2, 1)))
        ]
    shapes = ((2048, 4), (4096, 8), (1024, 4), (8192, 16))
    loops = [TritonScanLoop(xblock=1, rblock=r, warps=w) for r, w in shapes if r < length]
    if rows < gpu.sms and length >= 4096 and _may_split(kernel):
        splits = []
        for share, r, warps in ((2, 2048, 4), (4, 1024, 4), (1, 4096, 8)):
            pieces = min(power(share * gpu.sms // rows), 1024)
            while pieces > 2 and pieces * r > length:
                pieces //= 2
            splits.append(
                TritonScanSplit(
                    xblock=1, rblock=min(r, power(length)), splits=max(pieces, 2), warps=warps
                )
            )
        return (
            [*splits, *options[:2], *loops[:2]]
            if length >= 1 << 15
            else [*options[:2], *splits, *loops[:2]]
        )
    return [*options, *(loops[:2] if options else loops)]


def _across(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    rows = kernel.num_rows
    block = min(max(power(rows // (2 * gpu.sms)), 32), 256)
    walks = [
        TritonScanWalk(block=b, warps=max(b // 32, 1))
        for b in dict.fromkeys((block, 2 * block, max(block // 2, 32)))
    ]
    loops = [
        TritonScanLoop(xblock=x, rblock=r, warps=w)
        for x, r, w in ((32, 32, 4), (16, 64, 4), (8, 128, 4), (32, 64, 8))
        if r < 2 * kernel.row_length
    ]
    # A walk waits for memory at every element; only threads that fill the device hide that.
    return [*walks, *loops] if rows >= THREADS * gpu.sms else [*loops[:3], *walks]


def _may_split(kernel: Kernel) -> bool:
    """No scan depends on another: all totals of slices can be computed at once."""
    behind: set[int] = set()
    for instr in kernel.instrs:
        if any(isinstance(a, Ref) and a.id in behind for a in instr.args):
            if instr.op.startswith("scan_"):
                return False
            behind.add(instr.id)
        elif instr.op.startswith("scan_"):
            behind.add(instr.id)
    return True


def axes(kernel: Kernel, schedule: ScanSchedule) -> list[TileAxis]:
    """The axes of a schedule; the last is the scanned one."""
    rows = tuple(v for v in kernel.rows if v.size > 1)
    length = kernel.row_length
    if isinstance(schedule, TritonScanWalk):
        block = min(schedule.block, power(kernel.num_rows))
        return [
            TileAxis("x", rows, block, leaves_rest(kernel.num_rows, block)),
            TileAxis("r", kernel.reduced),
        ]
    block = power(length)
    if not isinstance(schedule, TritonScan):
        block = min(schedule.rblock, block)
    x = min(schedule.xblock, power(kernel.num_rows))
    place = TileAxis("r", kernel.reduced, block, leaves_rest(length, block))
    if kernel.family == "scan_column" and len(rows) > 1 and rows[-1].size >= x > 1:
        return [
            TileAxis("z", rows[:-1]),
            TileAxis("x", rows[-1:], x, leaves_rest(rows[-1].size, x)),
            place,
        ]
    return [TileAxis("x", rows, x, leaves_rest(kernel.num_rows, x)), place]


def functions(
    kernel: Kernel, schedule: ScanSchedule
) -> tuple[list[TritonFunction], dict[str, int]]:
    """The functions of a kernel in launch order, and the buffers between them (type → elements)."""
    cut = axes(kernel, schedule)
    if isinstance(schedule, TritonScanSplit):
        return _split(kernel, schedule, cut)
    scan = _Scan(kernel, cut, walks=isinstance(schedule, TritonScanWalk))
    grid = scan.place()
    scan.row_values()
    scan.start()
    scan.blocks("0", kernel.row_length)
    scan.row_stores()
    return [TritonFunction(kernel.name, *scan.writer.source(kernel.name), grid, schedule.warps)], {}


class _Scan:
    """State while one function is written."""

    def __init__(self, kernel: Kernel, cut: list[TileAxis], walks: bool = False):
        *self.rows, self.row = cut
        self.k, self.walks = kernel, walks
        self.writer = TritonWriter(kernel, cut)
        self.tile = self.writer.tile
        self.scans = [i for i in kernel.instrs if i.op.startswith("scan_")]
        self.backward = self.scans[0].backward

    def place(self, pieces: int = 0) -> int:
        """Declare the offsets of the program's rows; returns the number of programs."""
        counts = [(a.program, a.blocks) for a in self.rows]
        digits = (
            self.tile.programs([*counts, ("piece", pieces)], named=True)
            if pieces
            else self.tile.programs(counts)
        )
        for axis in self.rows:
            self.tile.place(axis, digits[axis.program])
        return math.prod(a.blocks for a in self.rows) * max(pieces, 1)

    def row_values(self) -> None:
        for instr in self.k.instrs:
            if self.k.is_row_value(instr):
                self.writer.emit(instr)

    def row_stores(self, only: str = "") -> None:
        for store in self.k.stores:
            if self.k.is_row_value(self.k.instrs[store.value]):
                self.writer.store(store, only)

    def start(self) -> None:
        """Declare the running values."""
        vectors = [a for a in self.rows if a.block > 1]
        for scan in self.scans:
            self.tile.put(
                f"c{scan.id} = tl.full({self.tile.shape(vectors) if vectors else '[]'}, {identity(scan)}, {TYPES[scan.type]})"
            )

    def blocks(self, start: str, length: int, total: bool = False) -> None:
        """Loop over `length` elements of the row from `start`; `total`: only compute the running values at its end."""
        tile, row = self.tile, self.row
        steps = -(-length // row.block)
        if steps > 1:
            tile.enter(f"for n in range(0, {steps!r}):")
        at = "0" if steps == 1 else f"({steps - 1} - n)" if self.backward else "n"
        block = at if row.block == 1 or at == "0" else f"{at} * {row.block}"
        tile.define(row, block if start == "0" else start if block == "0" else f"{start} + {block}")
        mask = tile.mask([row])
        targets = (
            [s.args[0].id for s in self.scans if isinstance(s.args[0], Ref)]
            if total
            else [s.value for s in self.k.stores if not self.k.is_row_value(self.k.instrs[s.value])]
        )
        for instr in self.writer.closure(targets, row_level=False):
            if instr.op.startswith("scan_"):
                self._scan(instr, mask, more=steps > 1)
            else:
                self.writer.emit(instr)
        if total:
            for scan in self.scans:
                self.tile.put(
                    f"c{scan.id} = {_join(scan, f'c{scan.id}', self.writer.fold(_reduce(scan), self._operand(scan, mask)))}"
                )
        else:
            for store in self.k.stores:
                if not self.k.is_row_value(self.k.instrs[store.value]):
                    self.writer.store(store)
        if steps > 1:
            tile.leave()

    def _operand(self, scan: Instr, mask: str) -> str:
        """The operand along the whole tile, with the identity in lanes outside the row."""
        (source,) = scan.args
        value = self.writer.arg(source, scan.type, True)
        if mask:
            return f"tl.where({mask}, {value}, {identity(scan)})"
        constant = not isinstance(source, Ref) or self.row not in self.writer.axes_of(source.id)
        return (
            f"tl.broadcast_to({value}, {self.tile.shape(self.writer.axes_of(scan.id))})"
            if constant
            else value
        )

    def _scan(self, scan: Instr, mask: str, more: bool) -> None:
        name = f"{scan.id}"
        if self.walks:
            self.tile.put(
                f"c{name} = {_join(scan, f'c{name}', self.writer.arg(scan.args[0], scan.type, True))}"
            )
            self.tile.put(f"v{name} = c{name}")
            return
        self.tile.put(f"s{name} = {self._operand(scan, mask)}")
        axis = 1 if len(self.tile.vectors) == 2 else 0
        turn = ", reverse=True" if scan.backward else ""
        if scan.op in ("scan_sum", "scan_prod"):
            run = f"tl.cum{scan.op.removeprefix('scan_')}(s{name}, {axis}{turn})"
        else:
            run = f"tl.associative_scan(s{name}, {axis}, {scan_joiner(scan)}{turn})"
        self.tile.put(f"v{name} = {_join(scan, f'c{name}', run)}")
        if more:
            self.tile.put(
                f"c{name} = {_join(scan, f'c{name}', self.writer.fold(_reduce(scan), f's{name}'))}"
            )


def _split(
    kernel: Kernel, schedule: TritonScanSplit, cut: list[TileAxis]
) -> tuple[list[TritonFunction], dict[str, int]]:
    row, pieces = cut[-1], schedule.splits
    chunk = -(-row.blocks // pieces) * row.block
    cut = [*cut[:-1], TileAxis("r", row.vars, row.block, leaves_rest(row.size, chunk * pieces))]
    slots: dict[int, tuple[str, int]] = {}
    counts: dict[str, int] = {}
    totals = _Scan(kernel, cut)
    for scan in totals.scans:
        slots[scan.id] = (scan.type, counts.setdefault(scan.type, 0))
        counts[scan.type] += kernel.num_rows * pieces

    def part(scan: Instr, piece: str) -> str:
        kind, first = slots[scan.id]
        axis = cut[0]
        at = f"{axis.name} * {pieces} + " if axis.vars else ""
        return f"part_{kind} + ({at}{first} + {piece})" if first else f"part_{kind} + ({at}{piece})"

    names = [f"part_{kind}" for kind in counts]
    grid = totals.place(pieces)
    totals.row_values()
    totals.start()
    totals.tile.put(f"start = piece * {chunk}")
    totals.blocks("start", chunk, total=True)
    for scan in totals.scans:
        totals.tile.put(f"tl.store({part(scan, 'piece')}, c{scan.id})")
    first = TritonFunction(
        f"{kernel.name}_0", *totals.writer.source(f"{kernel.name}_0", names), grid, schedule.warps
    )
    rest = _Scan(kernel, cut)
    rest.place(pieces)
    rest.row_values()
    rest.tile.put(f"start = piece * {chunk}")
    rest.tile.put(f"other = tl.arange(0, {pieces})")
    for scan in rest.scans:
        before = "other > piece" if scan.backward else "other < piece"
        rest.tile.put(
            f"p{scan.id} = tl.where({before}, tl.load({part(scan, 'other')}), {identity(scan)})"
        )
        rest.tile.put(f"c{scan.id} = {rest.writer.fold(_reduce(scan), f'p{scan.id}')}")
    rest.blocks("start", chunk)
    rest.row_stores("(piece == 0)")
    second = TritonFunction(
        f"{kernel.name}_1", *rest.writer.source(f"{kernel.name}_1", names), grid, schedule.warps
    )
    return [first, second], counts


def _reduce(scan: Instr) -> Instr:
    """The reduction that equals a scan's last value."""
    return replace(scan, op=scan.op.replace("scan_", "reduce_"))


def _join(scan: Instr, total: str, value: str) -> str:
    """Combine a running value with one more."""
    if not (row := reduction(scan.op)).is_extreme:
        return f"{total} {row.sign} {value}"
    nan = ", propagate_nan=tl.PropagateNan.ALL" if scan.type in FLOAT else ""
    return f"tl.maximum({total}, {value}{nan})"
