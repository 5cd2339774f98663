"""The ways to share a kernel between CUDA threads that are worth measuring (`dvk.composer.ir.schedules.cuda`).

Measurement decides between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dvk.composer.codegen.analysis.online import online_pair
from dvk.composer.ir.affine import Var
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.nodes import BYTES
from dvk.composer.ir.schedules.cuda import (
    CudaFlat,
    CudaLooped,
    CudaPersistent,
    CudaSchedule,
    CudaSplit,
)
from dvk.composer.ir.symint import divides, power
from dvk.target import DEFAULT, Gpu, Target

MAX_THREADS = 1024
MAX_HELD_BYTES = 256
"""Bytes of a row that one thread may hold: 64 of its registers."""
ACCESS_BYTES = 16
"""The widest load or store of one thread."""
MAX_OPTIONS = 12


def default_schedule(kernel: Kernel, target: Target = DEFAULT) -> CudaSchedule:
    """The default schedule: what a person would write first."""
    return schedules(kernel, target)[0]


def schedules(kernel: Kernel, target: Target = DEFAULT) -> list[CudaSchedule]:
    """The alternatives worth measuring, the best guess first."""
    families: dict[str, Callable[[Kernel, Gpu], list[CudaSchedule]]]
    families = {"pointwise": _pointwise, "row": _row, "column": _column}
    options = families[kernel.family](kernel, target.gpu)
    if kernel.reduced and online_pair(kernel) is not None:
        # One pass less over memory is worth more than the cost of its arithmetic; the plain form stays an alternative.
        repeated = [
            (replace(o, online=True), o) if isinstance(o, CudaLooped | CudaSplit) else (o,)
            for o in options
        ]
        options = [option for pair in repeated for option in pair]
    return list(dict.fromkeys(options))[:MAX_OPTIONS]


def widths(kernel: Kernel, variables: tuple[Var, ...]) -> list[int]:
    """Vector sizes that divide the fastest variable, widest first: up to 16 bytes of the narrowest tensor that is contiguous along it."""
    lane = next((v for v in reversed(variables) if v.size > 1), None)
    if lane is None:
        return [1]
    walked = [
        BYTES[kernel.inputs[i.buffer].dtype]
        for i in kernel.instrs
        if i.op == "load" and i.offset.coef(lane) == 1
    ]
    walked += [
        BYTES[kernel.outputs[s.buffer].dtype] for s in kernel.stores if s.offset.coef(lane) == 1
    ]
    if not walked:
        return [1]
    most = min(ACCESS_BYTES // min(walked), 8)
    return [w for w in (8, 4, 2, 1) if w <= most and divides(w, lane.size)]


# ------------------------------------------------------------------ pointwise


def _pointwise(kernel: Kernel, gpu: Gpu) -> list[CudaSchedule]:
    total = kernel.num_rows
    vectors = widths(kernel, kernel.rows)
    small = total // vectors[0] < gpu.sms * 256
    options: list[CudaSchedule] = [
        CudaFlat(threads=64 if small else 256, each=1, vector=vectors[0])
    ]
    for vector in vectors[:2]:
        # Small problems need every SM before they need long threads.
        enough = total // vector // (gpu.sms * 8)
        for threads in (256, 128, 512):
            for each in (1, 2, 4):
                if each == 1 or enough >= threads * each:
                    options.append(CudaFlat(threads=threads, each=each, vector=vector))
    return options


# ------------------------------------------------------------------ reductions


def _row(kernel: Kernel, gpu: Gpu) -> list[CudaSchedule]:
    rows, length = kernel.num_rows, kernel.row_length
    vectors = widths(kernel, kernel.reduced)
    persistent, looped = [], []
    for vector in vectors[:2]:
        for each in (4, 2, 8, 16, 1):
            lanes = min(max(power(-(-length // (vector * each))), 1), MAX_THREADS)
            if _held_bytes(kernel, -(-length // (lanes * vector)) * vector) <= min(
                MAX_HELD_BYTES, _held_bytes_a_block(gpu) // lanes
            ):
                side = _side(lanes, rows, gpu)
                persistent.append(CudaPersistent(lanes=lanes, rows=side, vector=vector))
        for lanes in (1024, 512, 256):
            if lanes * vector < length:
                looped.append(CudaLooped(lanes=lanes, rows=1, vector=vector))
    splits = _row_splits(kernel, vectors[0], gpu) if rows < 2 * gpu.sms and length >= 8192 else []
    if splits and (rows * 4 <= gpu.sms or not persistent):
        return [*splits[:4], *persistent[:3], *looped[:2], *splits[4:]]
    return [*persistent[:8], *looped[:3], *splits] if persistent else [*looped, *splits]


def _held_bytes_a_block(gpu: Gpu) -> int:
    """Bytes of a row that a block may hold: half of a multiprocessor's registers."""
    return gpu.registers_per_sm * 4 // 2


def _held_bytes(kernel: Kernel, each: int) -> int:
    """Bytes of a row per thread at `each` elements, by its widest input that is read whole."""
    loads = [
        BYTES[kernel.inputs[i.buffer].dtype]
        for i in kernel.instrs
        if i.op == "load" and not kernel.is_row_value(i)
    ]
    return each * max(loads, default=4)


def _side(lanes: int, rows: int, gpu: Gpu) -> int:
    """Rows per block, for rows of at most a warp: blocks of 128 threads, fewer if rows are few."""
    if lanes > gpu.warp:
        return 1
    side = 128 // lanes
    while side > 1 and rows < side * gpu.sms and side * lanes > gpu.warp:
        side //= 2
    return side


def _row_splits(kernel: Kernel, vector: int, gpu: Gpu) -> list[CudaSplit]:
    """Number of slices with which all rows together make a few blocks per SM."""
    result = []
    for share, lanes in ((2, 512), (2, 1024), (4, 256), (4, 512), (8, 256), (16, 128)):
        pieces = min(power(share * gpu.sms // kernel.num_rows), 2048)
        while pieces > 2 and pieces * lanes * vector > kernel.row_length:
            pieces //= 2
        if pieces >= 2:
            result.append(CudaSplit(lanes=lanes, rows=1, vector=vector, splits=pieces))
    return result


def _column(kernel: Kernel, gpu: Gpu) -> list[CudaSchedule]:
    rows, length = kernel.num_rows, kernel.row_length
    blocks = -(-rows // gpu.warp)
    # Many columns keep the GPU busy by themselves; each thread then takes several elements.
    wanted = min(max(power(length) // 8, 1), 8 if blocks >= 8 * gpu.sms else 16)
    order = sorted(
        (1, 2, 4, 8, 16, 32), key=lambda lanes: abs(lanes.bit_length() - wanted.bit_length())
    )
    persistent, looped = [], []
    for side in [c for c in (32, 64, 128) if c <= power(rows)] or [power(rows)]:
        for lanes in order:
            if (
                lanes * side > MAX_THREADS
                or lanes > power(length)
                or lanes * side < min(64, power(length) * side)
            ):
                continue
            if -(-length // lanes) <= 32:
                persistent.append(CudaPersistent(lanes=lanes, rows=side, vector=1))
            elif lanes >= 4:
                looped.append(CudaLooped(lanes=lanes, rows=side, vector=1))
    splits = _column_splits(rows, length, gpu)
    if splits:
        return [*splits, *looped[:4], *persistent[:4]]
    return [*persistent[:7], *looped[: 5 if persistent else None]]


def _column_splits(rows: int, length: int, gpu: Gpu) -> list[CudaSplit]:
    """Number of slices if columns alone do not make enough blocks."""
    blocks = -(-rows // gpu.warp)
    if length < 512 or blocks >= 4 * gpu.sms:
        return []
    result = []
    for share, lanes in ((8, 8), (4, 16), (16, 8), (8, 16), (4, 32)):
        pieces = min(power(max(share * gpu.sms // blocks, 2)), 1024)
        while pieces > 2 and pieces * lanes * 4 > length:
            pieces //= 2
        result.append(
            CudaSplit(lanes=lanes, rows=min(gpu.warp, power(rows)), vector=1, splits=pieces)
        )
    return result
