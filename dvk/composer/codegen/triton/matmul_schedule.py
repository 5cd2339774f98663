"""Matmul schedules in Triton, ordered by a performance model of the GPU.

A tile's time is the larger of its arithmetic and of fetching its operands from the L2 cache; tiles run in waves over the multiprocessors;
device memory is read at least once. The model orders schedules, measurement decides.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dvk.composer.codegen.analysis.tiles import INT32
from dvk.composer.codegen.triton import lanes_schedule, unpacked_schedule
from dvk.composer.codegen.triton.matmul_tiles import SKINNY_ACROSS, SKINNY_ALONG, TALL, TILES
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.matmul_form import MatmulForm, form_of
from dvk.composer.ir.nodes import BYTES, EIGHTHS, HALVES
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.ir.schedules.triton import TritonProduct, TritonSchedule, TritonSkinny
from dvk.composer.ir.symint import power
from dvk.target import DEFAULT, Gpu, Target

L2_GB_PER_S = 40.0
"""Bandwidth from L2 to one multiprocessor: of an H200; cards since the A100 differ little."""
LAUNCH_US = 4.0
"""Cost of a second function."""
MAX_SHORT = 16
"""Maximum rows or columns that `skinny` unrolls."""
MAX_SUMS = 1 << 14
"""Sums that the registers of four warps hold: 128 per thread."""
MIN_DOT = 16
"""Shortest side of a tile that `tl.dot` accepts."""
WASTE = 1.25
"""Most elements of padded channels per element."""
LEAST_STAGES = 3
"""Loads in flight that a tile which lists more of them needs at least."""
MAX_TILES = 7
"""Number of different tiles among the alternatives."""
MAX_OPTIONS = 10
BESIDE_LANES = 3
"""Schedules without matrix units, behind products on lanes."""
BESIDE_PACKED = 3
"""Schedules that read a word for each element, beside those that read it once."""
CODES = ("int8", *EIGHTHS)
"""Types that matrix units multiply four to a register."""
MIN_CODES = 32
"""Shortest k of a tile of 8-bit codes."""
H200_GFLOPS = {
    "byte": 11000.0,
    "half": 6000.0,
    "tf32": 2800.0,
    "tf32x3": 800.0,
    "float32": 320.0,
    "float64": 60.0,
}
GFLOPS = {
    (8, 0): {
        "byte": 4600.0,
        "half": 2300.0,
        "tf32": 1100.0,
        "tf32x3": 310.0,
        "float32": 110.0,
        "float64": 21.0,
    },
    (8, 6): {
        "byte": 1360.0,
        "half": 680.0,
        "tf32": 320.0,
        "tf32x3": 90.0,
        "float32": 270.0,
        "float64": 2.0,
    },
    (8, 9): {
        "byte": 2000.0,
        "half": 1000.0,
        "tf32": 480.0,
        "tf32x3": 140.0,
        "float32": 400.0,
        "float64": 2.4,
    },
    (9, 0): H200_GFLOPS,
}
"""Compute capability → arithmetic rate of one multiprocessor with large tiles: Triton's `tl.dot`, in float32 without tensor cores.

Measured on an H200; for other cards (A100, RTX 3090, RTX 4090): the vendor's peaks times the share of its peaks that an H200 reaches. With
this rate and `EFFICIENCY`, `tf32x3` reaches nearly 600 on an H200 for operands aligned to 16 bytes, memory and waves included; for other
operands it is below `float32`."""
SKINNY_GFLOPS = 200.0
LIBRARY = 0.8
"""Time of a library's matmul, relative to Triton's for the same arithmetic."""

SPLITS = (1, 2, 4, 8, 16, 32)
EFFICIENCY = {
    "byte": 8192.0,
    "half": 8192.0,
    "tf32": 4096.0,
    "tf32x3": 4096.0,
    "float32": 1024.0,
    "float64": 256.0,
}
"""Elements of a tile at which half of a multiprocessor's rate is reached."""


MatmulSchedule = TritonProduct | TritonSkinny


@dataclass(frozen=True)
class MatmulWork:
    """The size of a matmul for the model."""

    sizes: tuple[int, int, int]
    """Elements of batch, rows and columns: plain numbers, since symbolic sizes are slow to compute with."""
    sums: int
    kind: str
    depth: int
    width: int
    """Bytes of an operand's element."""
    num_bytes: float
    gpu: Gpu
    channels: int = 0
    """Elements of k for each place of a convolution's windows; 0 if k is flat."""
    along: bool = False
    """The longer operand lies along k in memory."""
    beside: bool = False
    """The rows have sums of their own, which tiles of matrix units have no room for."""
    block: int = 0
    """Elements of k with one scale, the most that a tile takes at a time; 0 for any number."""
    operands: tuple[int, int] = (1, 1)
    """Different operands with the tile's rows, and with its columns: each is loaded into shared memory."""


def schedules(kernel: Kernel, gpu: Gpu) -> list[TritonSchedule]:
    """The alternatives worth measuring, the best guess first."""
    work = _work(kernel, gpu)
    kind, options = work.kind, _ranked(work)
    # List each tile once before any tile twice; then without slices, if slices come first.
    by_tile: dict[MatmulSchedule, list[MatmulSchedule]] = defaultdict(list)
    for option in options:
        by_tile[_shape(option)].append(option)
    firsts = [first for first, *_ in by_tile.values()]
    seconds = [
        next((o for o in others if o.splits == 1), others[0])
        for _, *others in by_tile.values()
        if others
    ]
    kept = [*firsts[:MAX_TILES], *seconds][:MAX_OPTIONS]
    if kind == "float32" and all(map(_is_threefold, kept)):  # without TF32 in tensor cores
        kept += [option for option in firsts if not _is_threefold(option)][:1]
    walking = next(
        (
            o
            for o in kept
            if isinstance(o, TritonProduct) and o.splits == 1 and _programs(work, o) > 2 * gpu.sms
        ),
        None,
    )
    # With rows or weights at computed places, as of experts, a loop over tiles was 1.3 times as slow (Mixtral 8x7B on an H200).
    if (
        walking is not None
        and kind != "float64"
        and not any(i.op == "gather" for i in kernel.instrs)
    ):
        kept.insert(2, _walking(walking, work))
    unpacked = unpacked_schedule.options(kernel, gpu)
    if on_lanes := lanes_schedule.options(kernel, gpu):
        return [*on_lanes, *unpacked[:BESIDE_LANES], *kept[:1]]
    return [*unpacked, *(kept[:BESIDE_PACKED] if unpacked else kept)]


def _walking(option: TritonProduct, work: MatmulWork) -> TritonProduct:
    """As many programs as multiprocessors, each with a loop over tiles; the largest tiles of halves were faster with narrow strips and
    one more load in flight (H200)."""
    longer = replace(option, programs=work.gpu.sms, stages=4, group=4)
    largest = (option.rows, option.columns, work.kind) == (128, 256, "half")
    return longer if largest and _fits(longer, work) else replace(option, programs=work.gpu.sms)


def _fits(option: TritonProduct, work: MatmulWork) -> bool:
    """The loads in flight have room in shared memory."""
    held = _loaded(option.rows, option.columns, option.depth, work) * option.stages
    return held <= work.gpu.shared_bytes_per_block


def _loaded(rows: int, columns: int, depth: int, work: MatmulWork) -> int:
    """Bytes of shared memory that one step along k takes."""
    ups, sides = work.operands
    return (ups * rows + sides * columns) * depth * work.width


def _is_threefold(option: MatmulSchedule) -> bool:
    return isinstance(option, TritonProduct) and bool(option.dot)


def ranked(kernel: Kernel, target: Target = DEFAULT) -> list[MatmulSchedule]:
    """All alternatives whose programs make one tile each, the best guess first."""
    return _ranked(_work(kernel, target.gpu))


def _ranked(work: MatmulWork) -> list[MatmulSchedule]:
    # Short sums cut tiles of several depths to the same one.
    found: list[MatmulSchedule] = [*_tiles(work), *_skinny(work)]
    return sorted(dict.fromkeys(found), key=lambda option: _us(work, option))


def pays(chosen: Iterable[tuple[Kernel, Schedule]]) -> bool:
    """Predict whether generated matmuls, with their fused epilogues, are faster than the library's; some kernel must be a matmul.

    Of 49 generated tasks timed both ways on an H100, 42 were faster with generated matmuls; the model predicts this for 41 of them, and for
    the other seven.

    Args:
        chosen: kernels with their schedules, on the default target: texts to learn from must not depend on the machine.
    """
    saved = [
        _library_us(work := _work(kernel, DEFAULT.gpu)) - _us(work, schedule)
        for kernel, schedule in chosen
        if isinstance(schedule, TritonProduct | TritonSkinny)
    ]
    return bool(saved) and sum(saved) > 0


def _library_us(work: MatmulWork) -> float:
    """Time of the library's matmul, which has tiles, and other algorithms for vectors alone, plus a kernel that reads its result."""
    plain: list[MatmulSchedule] = [option for option in _tiles(work) if not option.dot] or list(
        _skinny(work)
    )
    results = math.prod(work.sizes) * work.sums * work.width
    return (
        LIBRARY * min(_us(work, option) for option in plain)
        + LAUNCH_US / 2
        + 2e-3 * results / work.gpu.gb_per_s
    )


def _work(kernel: Kernel, gpu: Gpu) -> MatmulWork:
    form = form_of(kernel)
    assert form is not None
    dtype = form.dtype
    kind = kind_of(form)
    batch, rows, columns = map(int, form.sizes)
    return MatmulWork(
        (batch, rows, columns),
        len(form.terms),
        kind,
        int(kernel.row_length),
        BYTES[dtype],
        float(int(kernel.num_bytes)),
        gpu,
        0 if form.block else int(channels_of(kernel, form)),
        _along(kernel, form),
        bool(form.beside),
        form.block,
        (len({t.left.id for t in form.terms}), len({t.right.id for t in form.terms})),
    )


def _along(kernel: Kernel, form: MatmulForm) -> bool:
    k = next((v for v in reversed(kernel.reduced) if v.size > 1), None)
    long = form.columns if form.sizes[2] >= form.sizes[1] else form.rows
    loads = [i for i in kernel.instrs if i.op == "load" and i.vars & frozenset(long)]
    return k is not None and any(abs(i.offset.coef(k)) == 1 for i in loads)


def kind_of(form: MatmulForm) -> str:
    """Class of tiles."""
    if form.dtype in CODES:
        return "byte"
    return "half" if form.dtype in HALVES else "tf32" if form.tf32 else form.dtype


def least_depth(form: MatmulForm) -> int:
    """Shortest k of a tile that `tl.dot` accepts."""
    return MIN_CODES if kind_of(form) == "byte" else MIN_DOT


def _shape(option: MatmulSchedule) -> MatmulSchedule:
    """What options have in common that differ in splits, stages, strips and programs alone."""
    if isinstance(option, TritonProduct):
        return replace(option, splits=1, stages=1, group=1, programs=0)
    return replace(option, splits=1, stages=1)


def _tiles(work: MatmulWork) -> Iterator[TritonProduct]:
    _, ups, sides = work.sizes
    alone = min(ups, sides) == 1 and work.sums <= MAX_SHORT and not work.block
    if work.beside or alone:
        return  # a matrix times a vector: matrix units would multiply copies
    classes = ("tf32x3", "float32") if work.kind == "float32" else (work.kind,)
    tiles = [(kind, *tile) for kind in classes for tile in _shapes(work, kind)]
    for (kind, rows, columns, depth, warps, stages), splits in itertools.product(tiles, SPLITS):
        too_tall = rows > 16 and rows >= 2 * power(ups)
        too_wide = columns > 32 and columns >= 2 * power(sides)
        # The product of a block is in registers next to the sum.
        held = work.sums + bool(work.block)
        many = rows * columns * held > MAX_SUMS // 4 * warps
        short = splits > 1 and work.depth < 4 * splits * depth
        short |= splits > 1 and splits * math.prod(work.sizes) * work.sums >= INT32
        if too_tall or too_wide or many or short:
            continue
        room = work.gpu.shared_bytes_per_block // _loaded(rows, columns, depth, work)
        stages = min(stages, max(room, LEAST_STAGES))
        made = TritonProduct(
            rows=rows,
            columns=columns,
            depth=depth,
            warps=warps,
            stages=stages,
            group=16 if (rows, columns, stages) == (128, 256, 4) else 8,
            splits=splits,
            programs=0,
            dot="tf32x3" if kind == "tf32x3" else "",
        )
        if _fits(made, work):
            yield made


def _shapes(work: MatmulWork, kind: str) -> list[tuple[int, int, int, int, int]]:
    """Rows, columns, depth, warps and stages of tiles; blocks of a convolution's k, and shorter ones that keep to one place."""
    if work.block:
        return [*dict.fromkeys(_within(tile, work.block) for tile in TILES[kind])]
    if not work.channels:
        return [*TILES[kind]]
    pixels_first = work.sizes[1] >= work.sizes[2]
    shapes = []
    for rows, columns, depth, warps, stages in (*TILES[kind], *TALL[kind]):
        if not pixels_first and (rows, columns, depth, warps, stages) in TALL[kind]:
            rows, columns = columns, rows
        for length in dict.fromkeys((depth, whole_depth(depth, work.channels))):
            # As many bytes are in flight.
            shapes.append((rows, columns, length, warps, min(stages * depth // length, 6)))
    return shapes


def _within(tile: tuple[int, int, int, int, int], block: int) -> tuple[int, int, int, int, int]:
    """A tile that takes at most a block of k at a time, with as many bytes in flight."""
    rows, columns, depth, warps, stages = tile
    length = min(depth, block)
    return rows, columns, length, warps, min(stages * depth // length, 6)


def channels_of(kernel: Kernel, form: MatmulForm) -> int:
    """Elements of k for each place of an implicit matmul's windows, or for each scale; 0 for other matmuls."""
    live = [v for v in kernel.reduced if v.size > 1]
    return live[-1].size if (form.implicit or form.block) and len(live) > 1 else 0


def padded_channels(channels: int, depth: int) -> int:
    """Channels rounded up to whole blocks; 0 if too many would be padding, and blocks go across places."""
    padded = -(-channels // depth) * depth
    return padded if padded <= WASTE * channels else 0


def whole_depth(depth: int, channels: int) -> int:
    """The depth, or the largest part of it whose blocks keep to one place; the depth if there is none."""
    parts = (depth, depth // 2, depth // 4)
    return next((d for d in parts if d >= MIN_DOT and padded_channels(channels, d)), depth)


def _skinny(work: MatmulWork) -> Iterator[TritonSkinny]:
    _, ups, sides = work.sizes
    short, long = min(ups, sides), max(ups, sides)
    if short * work.sums > MAX_SHORT or work.block:
        return
    shapes = SKINNY_ALONG if work.along else SKINNY_ACROSS
    for (block, depth, stages), splits in itertools.product(shapes, SPLITS):
        fits = block * depth * power(short * work.sums) <= MAX_SUMS and block <= max(
            power(long), 16
        )
        small = splits * math.prod(work.sizes) * work.sums < INT32
        if fits and (splits == 1 or (small and work.depth >= 2 * splits * depth)):
            depth = min(depth, max(power(work.depth), 2))
            yield TritonSkinny(block=block, depth=depth, warps=4, stages=stages, splits=splits)


def _programs(work: MatmulWork, option: MatmulSchedule) -> int:
    batch, ups, sides = work.sizes
    if isinstance(option, TritonSkinny):
        return batch * -(-max(ups, sides) // option.block) * option.splits
    return batch * -(-ups // option.rows) * -(-sides // option.columns) * option.splits


def _us(work: MatmulWork, option: MatmulSchedule) -> float:
    """Modelled time in microseconds."""
    batch, ups, sides = work.sizes
    gpu = work.gpu
    splits, programs = option.splits, _programs(work, option)
    length = -(-work.depth // splits)
    if isinstance(option, TritonSkinny):
        short = min(ups, sides)
        tall, flat, rate = option.block, short, SKINNY_GFLOPS
        # With few bytes in flight per program, several must share a multiprocessor for its share of the bandwidth.
        together = 6.0
    else:
        tall, flat = option.rows, option.columns
        size = tall * flat
        kind = option.dot or work.kind
        rate = GFLOPS.get(gpu.capability, H200_GFLOPS)[kind] * size / (size + EFFICIENCY[kind])
        together = min(max(2.0**15 / (size * work.sums), 1.0), 8.0)
    waves = math.ceil(programs / (gpu.sms * together))
    busy = min(together, programs / gpu.sms) if waves == 1 else together
    arithmetic = 2e-3 * tall * flat * length * work.sums * max(busy, 1.0) / rate
    fetched = 1e-3 * (tall + flat * work.sums) * length * work.width * max(busy, 1.0) / L2_GB_PER_S
    streamed = work.num_bytes * 1e-3 / (gpu.gb_per_s * min(1.0, programs / (2.0 * gpu.sms)))
    partial = (
        0.0
        if splits == 1
        else LAUNCH_US + 8e-3 * splits * work.sums * batch * ups * sides / gpu.gb_per_s
    )
    return max(waves * max(arithmetic, fetched), streamed) + partial
