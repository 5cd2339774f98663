"""The ways to cut a kernel into Triton programs that are worth measuring (`dvk.composer.ir.schedules.triton`), and the axes of each.

Measurement decides between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from dvk.composer.codegen.analysis.online import online_pair
from dvk.composer.codegen.analysis.tiles import INT32, TileAxis
from dvk.composer.codegen.triton import attention_schedule, matmul_schedule, pooling, row_sums, scan
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.attention_kernel import AttentionKernel
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import READS, Kernel
from dvk.composer.ir.primitives import GPU_COSTLY
from dvk.composer.ir.schedules.triton import (
    TritonFlat,
    TritonLooped,
    TritonPersistent,
    TritonRowSums,
    TritonSchedule,
    TritonSplit,
    TritonStride,
    TritonTile,
    TritonWindow,
    TritonWindowTile,
)
from dvk.composer.ir.symint import arguments, leaves_rest, pow2, power
from dvk.target import DEFAULT, Gpu, Target

NARROW = 16
"""Minimum extent of a variable that gets a separate tile axis."""
SMALL = 1 << 22
"""Elements that the default GPU processes in about the time of a launch; below, the number of launches decides."""
MIN_CROSSED = 8
"""Minimum extent of both dimensions of a tile that turns windows into another layout: 32 bytes, one sector of memory."""
MAX_OPTIONS = 12
MOST_PASSES = 24
"""Passes over a row up to which it is split: each is a launch, which adds up the partial sums of all passes before it. Thirty take a minute
to compile."""


SCHEDULES_BY_FAMILY: dict[str, Callable[[Kernel, Gpu], list[TritonSchedule]]] = {
    "window": pooling.schedules,
    "product": matmul_schedule.schedules,
    "scan": scan.schedules,
    "scan_column": scan.schedules,
    "row_sums": row_sums.schedules,
}
"""Kernel families that list their schedules themselves."""


def default_schedule(kernel: Kernel, target: Target = DEFAULT) -> TritonSchedule:
    """The default schedule: what a person would write first."""
    return schedules(kernel, target)[0]


def schedules(kernel: Kernel, target: Target = DEFAULT) -> list[TritonSchedule]:
    """The alternatives worth measuring, the best guess first."""
    gpu = target.gpu
    if isinstance(kernel, AttentionKernel):
        found = attention_schedule.schedules(kernel, gpu)
    elif kernel.family == "pointwise":
        found = _pointwise(kernel, gpu)
    elif kernel.family in SCHEDULES_BY_FAMILY:
        found = SCHEDULES_BY_FAMILY[kernel.family](kernel, gpu)
        if kernel.family == "window" and (across := crossing(kernel)) is not None:
            found = [*_crossed_windows(kernel, across), *found]
    elif kernel.family == "row":
        found = _row(kernel, gpu)
    else:
        found = _column(kernel, gpu)
    if kernel.reduced and online_pair(kernel) is not None:
        found = [replace(o, online=True) if isinstance(o, TritonSplit) else o for o in found]
    return list(dict.fromkeys(found))[:MAX_OPTIONS]


# ------------------------------------------------------------------ axes of a schedule


def axes(kernel: Kernel, schedule: TritonSchedule) -> list[TileAxis]:
    """The axes of a schedule, outermost first; reductions end with axis `r`.

    Raises:
        CannotCompose: the schedule is of a family without axes here.
    """
    rows = tuple(v for v in kernel.rows if v.size > 1)
    reduced = tuple(v for v in kernel.reduced if v.size > 1)
    if isinstance(schedule, TritonWindow):
        return [_axis("x", rows, schedule.block), TileAxis("r", reduced)]
    if isinstance(schedule, TritonWindowTile):
        outer, middle, inner = _tile_variables(kernel)
        return [
            *_scalar(outer),
            _axis("y", middle, schedule.yblock),
            _axis("x", inner, schedule.xblock),
            TileAxis("r", reduced),
        ]
    if isinstance(schedule, TritonFlat | TritonStride):
        return [_axis("x", rows, schedule.block)]
    if isinstance(schedule, TritonTile):
        outer, middle, inner = _tile_variables(kernel)
        return [
            *_scalar(outer),
            _axis("y", middle, schedule.yblock),
            _axis("x", inner, schedule.xblock),
        ]
    if isinstance(schedule, TritonRowSums):
        return [
            _axis("x", rows, schedule.xblock),
            _axis("r", reduced, pow2(math.prod(v.size for v in reduced))),
        ]
    if isinstance(schedule, TritonPersistent | TritonLooped | TritonSplit):
        return _row_axes(kernel, schedule, rows, reduced)
    raise CannotCompose(f"{schedule} has no axes here")


def _row_axes(
    kernel: Kernel,
    schedule: TritonPersistent | TritonLooped | TritonSplit,
    rows: tuple[Var, ...],
    reduced: tuple[Var, ...],
) -> list[TileAxis]:
    length = math.prod(v.size for v in reduced)
    if isinstance(schedule, TritonPersistent):
        if arguments([length]) and power(length) > persistent_elements(DEFAULT.gpu):
            raise CannotCompose("a row whose length varies does not fit in registers")
        block = pow2(length)
    else:
        block = schedule.rblock if arguments([length]) else min(schedule.rblock, power(length))
    row = TileAxis("r", reduced, block, leaves_rest(length, block))
    xblock = schedule.xblock
    if kernel.family == "column" and len(rows) > 1 and rows[-1].size >= xblock > 1:
        # Blocks stay inside the fastest variable: the slower ones are scalars of the program.
        return [*_scalar(rows[:-1]), _axis("x", rows[-1:], xblock), row]
    return [_axis("x", rows, xblock), row]


def _axis(name: str, variables: tuple[Var, ...], block: int) -> TileAxis:
    size = math.prod(v.size for v in variables)
    if not arguments([size]):
        block = min(block, power(size))
    return TileAxis(name, variables, block, leaves_rest(size, block))


def _scalar(variables: tuple[Var, ...]) -> list[TileAxis]:
    return [TileAxis("z", variables)] if variables else []


def _fastest(offset: Affine, among: list[Var]) -> Var | None:
    found = [(abs(step), var) for var, step in offset.terms if var in among]
    return min(found, key=lambda term: term[0])[1] if found else None


def crossing(kernel: Kernel) -> Var | None:
    """The variable that is fastest in some full-size input, if it differs from the fastest one of the outputs."""
    rows = [v for v in kernel.rows if v.size > 1]
    if len(rows) < 2:
        return None
    offsets = [(i.offset, i.vars) for i in kernel.instrs if i.op in READS and i.op != "gather"]
    offsets += [(s.offset, s.offset.vars) for s in kernel.stores]
    # A gather's computed indices are no part of its offset: it has a direction only if its neighbours lie next to each other.
    gathers = [i for i in kernel.instrs if i.op == "gather"]
    offsets += [(i.offset, i.vars) for i in gathers if 1 in (abs(t) for _, t in i.offset.terms)]
    total = math.prod(v.size for v in rows)
    for offset, variables in offsets:
        lead = _fastest(offset, rows)
        if (
            lead is not None
            and lead is not rows[-1]
            and 4 * math.prod(v.size for v in variables) >= total
        ):
            return lead
    return None


def _tile_variables(kernel: Kernel) -> tuple[tuple[Var, ...], tuple[Var, ...], tuple[Var, ...]]:
    rows = tuple(v for v in kernel.rows if v.size > 1)
    across = crossing(kernel)
    if across is None:
        return (), rows[:-1], rows[-1:]
    return tuple(v for v in rows[:-1] if v is not across), (across,), rows[-1:]


def _crossed_windows(kernel: Kernel, across: Var) -> list[TritonSchedule]:
    """Tiles over both fastest dimensions, for windows that are read in one layout and whose results are written in another."""
    lane = kernel.rows[-1].size if kernel.rows[-1].size > 1 else 1
    if min(across.size, lane) < MIN_CROSSED:
        return []
    unroll = kernel.row_length <= pooling.MAX_UNROLLED
    shapes = ((32, 32, 4), (16, 64, 4), (32, 64, 8), (32, 16, 4))
    return [TritonWindowTile(yblock=y, xblock=x, unroll=unroll, warps=w) for y, x, w in shapes]


# ------------------------------------------------------------------ pointwise


MOST_GATHERS = 4
"""Reads at computed indices beyond which tiles hold too many addresses: bicubic resampling took 1.6x of the time of flat blocks (H200)."""


def _pointwise(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    rows = [v for v in kernel.rows if v.size > 1]
    total = kernel.num_rows
    widest = max((_width(b.dtype) for b in (*kernel.inputs, *kernel.outputs)), default=4)
    # 16 bytes a thread and access is the widest load; small problems need many small programs instead.
    block = min(max(power(total // (4 * gpu.sms)), 128), 1024 if widest >= 4 else 2048)
    flat: list[TritonFlat] = [
        _flat(block),
        _flat(max(block // 2, 128)),
        _flat(block, 8),
        _flat(2 * block),
        _flat(2 * block, 4),
    ]
    if widest < 4 and any(i.op in GPU_COSTLY for i in kernel.instrs):
        # Arithmetic, not memory, is the limit: more independent elements per thread hide its latency.
        flat = [_flat(2 * block, 4), _flat(2 * block), *flat[:2]]
    if sum(i.op == "gather" for i in kernel.instrs) > MOST_GATHERS:
        return [*flat]
    across = crossing(kernel)
    if across is not None:
        shapes = ((64, 64, 8), (32, 32, 4), (64, 32, 4), (32, 64, 4), (64, 16, 4), (16, 64, 4))
        tiles = [_tile(y, x, warps) for y, x, warps in shapes]
        short = min(across.size, rows[-1].size) < NARROW
        return [*flat[:2], *tiles, *flat[2:]] if short else [*tiles, *flat]
    divides = len(rows) > 1
    if divides and rows[-1].size >= 64:
        xblock = min(power(rows[-1].size), 1024)
        wide = [
            _tile(max(factor * block // xblock, 1), xblock, warps)
            for factor, warps in ((1, 4), (2, 4), (4, 8))
        ]
        wide = wide[::-1] if flat[0].block > block else wide
        # A fastest run that fills its blocks loses no lanes, and its rows need no division.
        exact = rows[-1].size % xblock == 0
        if exact and total >= 1 << 20:
            return [*wide[:1], *flat[:1], *wide[1:], *flat[1:]]
        return [*flat[:1], *wide, *flat[1:]]
    return [*flat]


def _width(dtype: str) -> int:
    return {"float64": 8, "int64": 8, "float32": 4, "int32": 4}.get(dtype, 2)


def _flat(block: int, warps: int = 0) -> TritonFlat:
    return TritonFlat(block=block, warps=warps or min(max(block // 256, 1), 8))


def _tile(yblock: int, xblock: int, warps: int) -> TritonTile:
    return TritonTile(yblock=yblock, xblock=xblock, warps=warps)


# ------------------------------------------------------------------ reductions


def _live(kernel: Kernel) -> int:
    """Element-sized values that a whole-row kernel holds at once, roughly: its full-size inputs."""
    loads = [
        i for i in kernel.instrs if i.op in READS and not kernel.is_row_value(i) and len(i.vars) > 0
    ]
    full = [i for i in loads if not i.vars.isdisjoint(kernel.rows)] or loads
    # An index next to each value makes it twice as wide.
    wide = any(i.type in ("float64", "int64") for i in full) or any(
        i.op == "order" for i in kernel.instrs
    )
    return max(len(full), 1) * (2 if wide else 1)


def persistent_elements(gpu: Gpu) -> int:
    """Values of one tile that registers can hold: half of a multiprocessor's, 32 of 4 bytes a thread with 1024 threads."""
    return gpu.registers_per_sm // 2


def _row(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    rows, length = kernel.num_rows, kernel.row_length
    whole = power(length)
    found: list[TritonSchedule] = []
    most = persistent_elements(gpu)
    if whole * min(_live(kernel), 4) <= most * 2 and whole <= most:
        # About 8 to 32 elements per thread; short rows share a program so that it has work for four warps.
        xblock = 1
        while xblock * whole < 1024 and rows // (2 * xblock) >= 2 * gpu.sms:
            xblock *= 2
        warps = min(max(xblock * whole // 512, 1), 16) if whole < 16384 else 16
        found.append(_persistent(xblock, warps))
        found.append(_persistent(xblock, min(2 * warps, 32)))
        if warps > 1:
            found.append(_persistent(xblock, warps // 2))
        if whole >= 8192 and rows >= 8 * gpu.sms:
            # More rows at a time hide the latency of their reductions: an H200 quantised 4096 rows of 14336 in 45 µs instead of 51.
            found.append(_persistent(xblock, warps // 4))
        if whole <= 2048 and rows >= 4 * xblock:
            found += [
                _persistent(2 * xblock, min(2 * warps, 16)),
                _persistent(4 * xblock, min(4 * warps, 16)),
            ]
        if xblock > 1 and whole >= 256:
            found.append(_persistent(1, max(min(whole // 256, 4), 1)))
    loops: list[TritonSchedule] = []
    if length >= INT32:
        return [*found, *_splits(kernel, gpu)]  # a loop's counter has 32 bits
    if length > 1024:
        online = online_pair(kernel) is not None
        # Long rows need many bytes in flight; short ones several programs per SM.
        long, short = (
            ((8192, 16), (16384, 32), (8192, 8), (4096, 8)),
            ((8192, 16), (4096, 8), (2048, 8), (1024, 4)),
        )
        for rblock, warps in long if length > 16384 else short:
            if rblock < length:
                if online:
                    loops.append(_looped(1, rblock, warps, online=True))
                loops.append(_looped(1, rblock, warps))
    elif arguments([length]):
        loops.append(_looped(1, 1024, 4))
    splits = _splits(kernel, gpu)
    if rows < gpu.sms and length > 8192 and splits:
        # If a whole row fits, one launch with idle SMs usually beats two launches (8 us of host time each).
        return [*found[:2], *splits[:4], *found[2:4], *loops[:2], *splits[4:]]
    return [*found, *loops, *splits[:2]]


def _column(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    rows, length = kernel.num_rows, kernel.row_length
    whole = power(length)
    found: list[TritonSchedule] = []
    for xblock in (32, 16, 64, 8):
        if whole * xblock * min(_live(kernel), 2) <= persistent_elements(gpu) // 2:
            warps = min(max(whole * xblock // 512, 1), 16)
            found += [_persistent(xblock, warps), _persistent(xblock, min(2 * warps, 16))]
    shapes = ((32, 32, 4), (64, 16, 4), (64, 32, 8), (32, 64, 8), (128, 16, 8), (16, 128, 8))
    if max((_width(b.dtype) for b in kernel.inputs), default=4) == 2:
        # Lines of two-byte values: 0.087 instead of 0.094 ms for products of 512 of 134 million (H200), and of 64 of 268 million 0.17
        # instead of 0.28.
        lines = ((512, 8, 4),) if rows >= 16 * 512 * gpu.sms else ((64, 32, 4),)
        shapes = (*lines, *shapes[:-1])
    loops = [_looped(x, r, w) for x, r, w in shapes if r < length or arguments([length])]
    if online_pair(kernel) is not None:
        loops = [option for loop in loops for option in (replace(loop, online=True), loop)]
    splits = []
    if length >= 128 and rows < 256 * gpu.sms:
        shares = ((64, 32, 8), (32, 64, 8), (128, 16, 8), (64, 32, 16), (128, 32, 4), (16, 128, 8))
        most = _most_pieces(kernel)
        for xblock, rblock, programs in shares if most < length else shares[:-1]:
            pieces = max(2, power(programs * gpu.sms // max(-(-rows // xblock), 1)))
            while pieces > 2 and (pieces * rblock > length or pieces > most):
                pieces //= 2
            splits.append(_split(xblock, rblock, pieces, 8))
        if most < length:  # the widest blocks that still keep all SMs busy
            splits.sort(key=lambda s: s.splits * -(-rows // s.xblock) < 3 * gpu.sms // 2)
    if found and rows * length <= SMALL * gpu.gb_per_s / DEFAULT.gpu.gb_per_s:
        return [*found[:4], *splits[:3], *loops[:4]]
    single = kernel.num_stages == 2 and all(
        kernel.is_row_value(kernel.instrs[s.value]) for s in kernel.stores
    )
    # Loops in tiles of 32 columns and 4 warps fill half of the device's warps from 256 columns a multiprocessor on.
    if rows < (256 if single else 64) * gpu.sms and length >= 1024 and splits:
        return [*splits[:4], *loops[:3], *found[:2], *splits[4:]]
    # One pass streams best in small tiles; several passes over the same data are better kept in registers.
    return (
        [*loops[:4], *found[:4], *splits[:2], *loops[4:]]
        if single
        else [*found[:5], *loops, *splits[:2]]
    )


def _most_pieces(kernel: Kernel) -> int:
    """Slices of a row beyond which combining them costs more than it gains: where elements are computed from a row's value, each of
    the programs that compute them combines all slices, which grows with their square.
    """
    if all(kernel.is_row_value(kernel.instrs[s.value]) for s in kernel.stores):
        return kernel.row_length
    return max(2, math.isqrt(kernel.row_length // 4))


def _splits(kernel: Kernel, gpu: Gpu) -> list[TritonSplit]:
    """Number of slices with which all rows together make a few programs per SM."""
    rows, length = kernel.num_rows, kernel.row_length
    if rows >= 4 * gpu.sms or length < 2048 or (kernel.num_stages > MOST_PASSES and length < INT32):
        return []
    options = []
    shares = ((8, 2048, 8), (4, 1024, 4), (8, 1024, 4), (4, 2048, 8), (16, 1024, 4), (2, 4096, 8))
    if any(i.bounds for i in kernel.instrs):
        # Each bound is a flag a lane: small blocks took 0.7x to 0.9x of the time of large ones (differences of shifted images, H200).
        shares = (shares[1], shares[0], *shares[2:])
    for programs, rblock, warps in shares:
        pieces = power(programs * gpu.sms // rows)
        while pieces > 2 and (pieces * rblock > length or pieces > 2048):
            pieces //= 2
        if pieces >= 2 and rblock <= length:
            options.append(_split(1, rblock, pieces, warps))
    return options


def _persistent(xblock: int, warps: int) -> TritonPersistent:
    return TritonPersistent(xblock=xblock, warps=warps)


def _looped(xblock: int, rblock: int, warps: int, online: bool = False) -> TritonLooped:
    return TritonLooped(xblock=xblock, rblock=rblock, warps=warps, evict=True, online=online)


def _split(xblock: int, rblock: int, splits: int, warps: int) -> TritonSplit:
    return TritonSplit(xblock=xblock, rblock=rblock, splits=splits, warps=warps)
