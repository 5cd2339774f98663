"""The schedules of an attention that are worth measuring: blocks, warps and stages for many queries, splits of the keys for few."""

from __future__ import annotations

from dvk.composer.codegen.triton.attention_walks import MIN_DOT
from dvk.composer.ir.attention_kernel import AttentionKernel
from dvk.composer.ir.nodes import BYTES, HALVES
from dvk.composer.ir.schedules.triton import TritonAttention, TritonSchedule
from dvk.composer.ir.symint import power
from dvk.target import Gpu

Shape = tuple[int, int, int, int, int]
SHAPES = ((64, 4, 3), (128, 4, 2), (32, 4, 4), (128, 8, 3), (64, 8, 3))
"""Keys, warps and stages for few queries."""
TALL: tuple[Shape, ...] = (
    (128, 64, 8, 2, 128),
    (64, 64, 4, 3, 0),
    (128, 128, 8, 3, 0),
    (128, 64, 8, 3, 0),
    (128, 64, 4, 3, 0),
    (64, 32, 4, 3, 0),
)
"""Queries, keys, warps, stages and registers for many, of heads of up to `NARROW` elements of 16 bits. With 128 registers two programs of 8
warps run on a multiprocessor: on an H200 16384 queries took 4.4 ms instead of 5.4."""
SHORT: tuple[Shape, ...] = (
    (64, 64, 4, 3, 0),
    (128, 64, 8, 3, 0),
    (128, 64, 4, 3, 0),
    (64, 64, 4, 2, 0),
    (64, 32, 4, 3, 0),
)
"""The same for heads of up to `SHORT_HEAD` elements."""
WIDE: tuple[Shape, ...] = (
    (128, 64, 8, 2, 0),
    (64, 64, 4, 2, 0),
    (128, 32, 8, 3, 0),
    (64, 32, 4, 3, 0),
)
"""The same for other heads."""
NARROW, SHORT_HEAD = 128, 64
SHARE = 0.8
"""Of shared memory that keys and values in flight may take beside few queries."""
OTHERS = 2048
"""Bytes of shared memory that neither queries nor keys nor values take."""
MAX_SPLITS = 64


def schedules(kernel: AttentionKernel, gpu: Gpu) -> list[TritonSchedule]:
    """The alternatives worth measuring, the best guess first."""
    form = kernel.forms[0]
    batch, rows, length = form.sizes
    longest = max(power(length), MIN_DOT)
    found: dict[TritonSchedule, None] = {}
    if rows > MIN_DOT:
        for block, wanted, warps, most, registers in _tall(kernel):
            block = min(block, power(rows))
            room = (
                gpu.shared_bytes_per_block - OTHERS - block * _heads(kernel)[0] * BYTES[form.dtype]
            )
            keys, stages = _fitting(kernel, min(wanted, longest), most, room)
            limit = registers if (block, keys) == (128, 64) else 0
            found[_schedule(block, keys, stages, warps, 1, limit)] = None
        return list(found)
    for wanted, warps, most in SHAPES:
        room = int(SHARE * gpu.shared_bytes_per_block)
        keys, stages = _fitting(kernel, min(wanted, longest), most, room)
        for programs in (4, 2):
            splits, limit = 1, min(MAX_SPLITS, length // (2 * keys))
            while batch * splits < programs * gpu.sms and splits < limit:
                splits *= 2
            found[_schedule(MIN_DOT, keys, stages, warps, splits)] = None
    return list(found)


def _tall(kernel: AttentionKernel) -> tuple[Shape, ...]:
    """Shapes for many queries, by their head."""
    head = max(_heads(kernel))
    if head > NARROW or kernel.forms[0].dtype not in HALVES:
        return WIDE
    return SHORT if head <= SHORT_HEAD else TALL


def _heads(kernel: AttentionKernel) -> tuple[int, int]:
    """Lanes of the heads of keys and of values."""
    return power(kernel.scores.row_length), power(kernel.forms[1].sizes[2])


def _fitting(kernel: AttentionKernel, keys: int, stages: int, room: int) -> tuple[int, int]:
    """Keys and stages whose blocks fit in `room` bytes."""
    each = sum(_heads(kernel)) * BYTES[kernel.forms[0].dtype]
    while keys * each * stages > room:
        if stages > 1:
            stages -= 1
        elif keys > MIN_DOT:
            keys //= 2
        else:
            break
    return keys, stages


def _schedule(
    rows: int, keys: int, stages: int, warps: int, splits: int, registers: int = 0
) -> TritonAttention:
    return TritonAttention(
        rows=rows, keys=keys, warps=warps, stages=stages, splits=splits, registers=registers
    )
