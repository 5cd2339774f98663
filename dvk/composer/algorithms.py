"""Algorithms that can run a kernel, each with its schedules.

An algorithm is a way to compute (a whole row in registers, several passes, one pass, a row split over many programs, …); a schedule is an
algorithm with its parameters. The renderers' own `schedules` list what is usually worth measuring; this module lists every correct
schedule, because which one pays is what is learnt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from dvk.composer.codegen import cpp
from dvk.composer.codegen.analysis.online import SoftmaxPair, online_pair
from dvk.composer.codegen.base import codegen
from dvk.composer.codegen.triton import matmul_schedule, unpacked_schedule
from dvk.composer.codegen.triton import schedule as triton_schedule
from dvk.composer.codegen.triton.matmul import MatmulSchedule, depth_of
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.matmul_form import form_of
from dvk.composer.ir.schedules.base import Schedule, expect
from dvk.composer.ir.schedules.cpp import CppLoops
from dvk.composer.ir.schedules.triton import (
    TritonFlat,
    TritonLanes,
    TritonLooped,
    TritonPersistent,
    TritonProduct,
    TritonSkinny,
    TritonSplit,
    TritonStride,
    TritonTile,
    TritonUnpacked,
)
from dvk.composer.ir.symint import power
from dvk.records import BackendName
from dvk.target import DEFAULT, Target

Algorithms = dict[str, list[Schedule]]
FEW = 5
"""Number of matmul schedules to keep: they are ordered by a model, and the last ones never pay."""
WRITTEN_OUT = 4
"""Longest short side of a matmul that is written with separate lines for each row or column: longer ones give programs of thousands of
words."""
WORDS = {
    "xblock": "rows",
    "rows": "rows",
    "columns": "columns",
    "depth": "depth",
    "block": "block",
    "rblock": "block",
    "yblock": "rows",
    "splits": "pieces",
    "programs": "programs",
    "chunk": "chunk",
    "width": "vector",
    "warps": "warps",
}
"""Key of a printed schedule → its word in a phrase, in the order of the phrases."""
ROW_SUMS = "rows added up in blocks"
MIN_LOOP = 8
"""Minimum row length, in elements, for which a loop pays."""


def algorithms(kernel: Kernel, backend: BackendName, target: Target = DEFAULT) -> Algorithms:
    """Map each algorithm to its schedules, the usual one first. Every pointwise, row and column kernel of more than a few elements has at
    least three."""
    if kernel.family == "row_sums":
        result: Algorithms = {ROW_SUMS: [*codegen(backend).schedules(kernel, target)]}
    elif backend == "cpp":
        result = _cpp(kernel, target)
    else:
        result = {"pointwise": _triton_pointwise, "product": _triton_products}.get(
            kernel.family, _triton_rows
        )(kernel, target)
    return {name: options for name, options in result.items() if options}


def usual(kernel: Kernel, backend: BackendName) -> Schedule:
    """The default schedule of a kernel."""
    if kernel.family == "row_sums":
        return codegen(backend).default_schedule(kernel)
    if kernel.family == "product":
        return _products(kernel)[0]
    return (cpp if backend == "cpp" else triton_schedule).default_schedule(kernel)


def name_of(kernel: Kernel, schedule: Schedule, backend: BackendName) -> str:
    """The algorithm of a schedule."""
    if kernel.family == "row_sums":
        return ROW_SUMS
    return _cpp_name(kernel, schedule) if backend == "cpp" else _triton_name(kernel, schedule)


def numbers(kernel: Kernel, schedule: Schedule) -> tuple[str, ...]:
    """The parameters of a schedule as phrases: `block 1024`, `warps 8`. Parameters without effect are omitted."""
    without = {("splits", 1), ("xblock", 1)}
    if isinstance(schedule, MatmulSchedule):
        form = form_of(kernel)
        assert form is not None
        schedule = replace(schedule, depth=depth_of(kernel, schedule, form))
    elif isinstance(schedule, CppLoops) and _is_chunk_idle(kernel, schedule):
        without.add(("chunk", schedule.chunk))
    printed = schedule.printed()
    words = {**WORDS, "xblock": "columns"} if isinstance(schedule, TritonTile) else WORDS
    return tuple(
        f"{word} {printed[key]}"
        for key, word in words.items()
        if printed.get(key) and (key, printed[key]) not in without
    )


def _is_chunk_idle(kernel: Kernel, schedule: CppLoops) -> bool:
    rows = kernel.family == "row" or schedule.strided
    return schedule.form == "flat" or (rows and schedule.parallel in ("rows", "serial"))


# ------------------------------------------------------------------ Triton


def _triton_name(kernel: Kernel, schedule: Schedule) -> str:
    match schedule:
        case TritonProduct():
            how = "tiled threefold" if schedule.dot else "tiled"
            return f"product {how}{' split' if schedule.splits > 1 else ''}"
        case TritonSkinny():
            return f"product skinny{' split' if schedule.splits > 1 else ''}"
        case TritonUnpacked():
            return f"product unpacked{' split' if schedule.splits > 1 else ''}"
        case TritonLanes():
            return "product lanes"
        case TritonFlat():
            return "flat"
        case TritonTile():
            return "tiled"
        case TritonStride():
            return "grid stride"
        case TritonPersistent():
            moments = schedule.online == "moments"
            return f"{kernel.family} registers{_how(kernel, 'moments' if moments else False)}"
        case TritonLooped():
            return f"{kernel.family} looped{_how(kernel, schedule.online)}"
        case TritonSplit():
            return f"{kernel.family} split{_how(kernel, schedule.online)}"
    raise CannotCompose(f"{schedule} has no name")


def _how(kernel: Kernel, online: bool | str) -> str:
    """How two dependent reductions become one pass, as a word."""
    pair = online_pair(kernel)
    if pair is None or not online:
        return ""
    if isinstance(pair, SoftmaxPair):
        return " online"
    return " moments" if online == "moments" else " welford"


def _named(kernel: Kernel, options: Iterable[Schedule], backend: BackendName) -> Algorithms:
    result: Algorithms = {}
    for option in options:
        schedules = result.setdefault(name_of(kernel, option, backend), [])
        if all(numbers(kernel, option) != numbers(kernel, o) for o in schedules):
            schedules.append(option)
    return result


def _triton_pointwise(kernel: Kernel, target: Target) -> Algorithms:
    options: list[Schedule] = [*triton_schedule.schedules(kernel, target)]
    total, sms = kernel.num_rows, target.gpu.sms
    blocks = [b for b in (256, 512, 1024, 2048, 4096) if b <= max(power(total), 256)]
    options += [TritonFlat(block=b, warps=w) for b in blocks for w in (4, 8) if b >= 32 * w]
    if total > 1:
        options += [
            TritonStride(block=b, programs=p, warps=w)
            for p in (sms, 2 * sms, 4 * sms, 8 * sms)
            for b, w in ((1024, 4), (2048, 8), (512, 4))
            if b < 2 * power(total)
        ] or [TritonStride(block=power(total), programs=sms, warps=1)]
    rows = [v for v in kernel.rows if v.size > 1]
    if len(rows) > 1:
        shapes = ((32, 32, 4), (4, 256, 4), (16, 64, 4), (64, 64, 8))
        options += [TritonTile(yblock=y, xblock=x, warps=w) for y, x, w in shapes]
    elif rows:
        # One contiguous run of memory: a tile of one row.
        options += [
            TritonTile(yblock=1, xblock=min(x, power(total)), warps=w)
            for x, w in ((512, 4), (1024, 8))
        ]
    return _named(kernel, options, "triton")


def _triton_products(kernel: Kernel, target: Target) -> Algorithms:
    return {
        name: options[:FEW]
        for name, options in _named(kernel, _products(kernel, target), "triton").items()
    }


def _products(kernel: Kernel, target: Target = DEFAULT) -> list[MatmulSchedule]:
    """Matmul schedules for training programs, the best guess first."""
    form, options = form_of(kernel), matmul_schedule.ranked(kernel, target)
    assert form is not None
    lines = min(form.sizes[1:]) * len(form.terms)
    few = [o for o in options if isinstance(o, TritonProduct) or lines <= WRITTEN_OUT] or options
    return [*unpacked_schedule.options(kernel, target.gpu), *few]


ROW_LOOPS = (
    (1, 8192, 16),
    (1, 4096, 8),
    (1, 2048, 8),
    (1, 1024, 4),
    (1, 512, 4),
    (1, 256, 2),
    (1, 128, 1),
    (1, 32, 1),
    (1, 8, 1),
)
COLUMN_LOOPS = ((32, 32, 4), (64, 16, 4), (16, 64, 4), (128, 16, 8))
"""Rows at a time, elements of a row at a time, warps."""


def _triton_rows(kernel: Kernel, target: Target) -> Algorithms:
    length, rows = kernel.row_length, kernel.num_rows
    shapes = COLUMN_LOOPS if kernel.family == "column" else ROW_LOOPS
    usable = [s for s in shapes if s[1] < length] or [
        (s[0], 8, 1) for s in shapes[:1] if length > MIN_LOOP
    ]
    options: list[Schedule] = [
        *triton_schedule.schedules(kernel, target),
        *_persistent(kernel, target),
    ]
    options += [TritonLooped(xblock=x, rblock=r, warps=w, evict=True) for x, r, w in usable[:4]]
    for x, r, w in usable[:3] if length >= 2 * MIN_LOOP else ():
        programs = power(2 * target.gpu.sms // max(-(-rows // x), 1))
        pieces = max(2, min(programs, power(max(length // r, 2)), 64))
        rblock = min(r, max(power(length) // pieces, 8))
        options.append(TritonSplit(xblock=x, rblock=rblock, splits=pieces, warps=w))
    first = triton_schedule.default_schedule(kernel, target)
    every = [one for option in options for one in _onlines(kernel, option)]
    return _named(kernel, [first, *every], "triton")


def _persistent(kernel: Kernel, target: Target) -> list[TritonPersistent]:
    """Schedules with whole rows in registers."""
    column, whole = kernel.family == "column", power(kernel.row_length)
    most = triton_schedule.persistent_elements(target.gpu)
    schedules: list[TritonPersistent] = []
    if whole * (16 if column else 1) > most:
        return schedules
    for xblock in (16, 32, 8) if column else (1, 2, 4, 8):
        if whole * xblock <= most and (column or xblock == 1 or whole * xblock <= 4096):
            warps = min(max(power(whole * xblock) // 512, 1), 16)
            schedules += [
                TritonPersistent(xblock=xblock, warps=w) for w in (warps, min(2 * warps, 32))
            ]
    return schedules


def _onlines(kernel: Kernel, option: Schedule) -> list[Schedule]:
    """The schedule with each way to compute two dependent reductions."""
    pair = online_pair(kernel)
    assert isinstance(option, TritonPersistent | TritonLooped | TritonSplit)
    plain = replace(option, online=False)
    if pair is None:
        return [plain]
    if isinstance(option, TritonSplit):
        return [replace(option, online=True), plain]
    moments = [] if isinstance(pair, SoftmaxPair) else [replace(option, online="moments")]
    once = [replace(option, online=True)] if isinstance(option, TritonLooped) else []
    return [plain, *once, *moments]


# ------------------------------------------------------------------ C++


def _cpp_name(kernel: Kernel, schedule: Schedule) -> str:
    loops = expect(schedule, CppLoops)
    if kernel.family == "pointwise":
        if loops.form == "flat":
            return "flat"
        lane = kernel.rows[-1].size if kernel.rows else 1
        whole = "lines" if loops.chunk >= lane and len(kernel.rows) > 1 else "pieces"
        return "serial" if loops.parallel == "serial" else whole
    if kernel.family == "column" and not loops.strided:
        return "column blocked"
    words = kernel.family if kernel.family == "row" else "column strided"
    pair = online_pair(kernel)
    if loops.parallel == "inner":
        return f"{words} split"
    if loops.online and pair is not None:
        return f"{words} {'online' if isinstance(pair, SoftmaxPair) else 'moments'}"
    if loops.block:
        return f"{words} blocks"
    if loops.parallel == "serial":
        return f"{words} serial"
    return f"{words} looped" if loops.keep else f"{words} recomputed"


def _cpp(kernel: Kernel, target: Target) -> Algorithms:
    options: list[Schedule] = [*cpp.schedules(kernel, target)]
    base = cpp.default_loops(kernel, target.cpu)
    lane = kernel.rows[-1].size if kernel.rows else 1
    if kernel.family == "pointwise":
        options += [
            replace(base, chunk=max(64, power(lane))),
            replace(base, chunk=1024),
            replace(base, chunk=max(16, power(lane) // 4)),
            replace(base, form="flat"),
            replace(base, form="flat", width=256),
            replace(base, parallel="serial"),
        ]
        return _named(kernel, options, "cpp")
    options += _cpp_rows(kernel, base)
    if kernel.family == "column":
        options += [replace(base, chunk=c) for c in (16, 64, 128, 512)]
    return _named(kernel, options, "cpp")


def _cpp_rows(kernel: Kernel, base: CppLoops) -> list[CppLoops]:
    """Schedules that walk row by row."""
    plain = replace(base, parallel="rows", chunk=4096)
    if kernel.family != "row":
        plain = replace(plain, walk="strided")
    options = [
        plain,
        replace(plain, parallel="inner"),
        replace(plain, parallel="inner", chunk=1024),
        replace(plain, parallel="serial"),
    ]
    longest = kernel.reduced[-1].size
    blocks = [b for b in (256, 1024) if b < longest] or [b for b in (8,) if b < longest]
    options += [replace(plain, block=b) for b in blocks]
    if online_pair(kernel) is not None:
        options += [replace(plain, online=True), replace(plain, online=True, width=256)]
    if kernel.num_stages > 1 and any(
        i.op in ("exp", "erf", "tanh", "sigmoid", "log", "log1p", "expm1") for i in kernel.instrs
    ):
        options.append(replace(plain, keep=False))
    return options


def elements(kernel: Kernel) -> int:
    """Number of elements that a kernel iterates over."""
    return math.prod(v.size for v in (*kernel.rows, *kernel.reduced))
