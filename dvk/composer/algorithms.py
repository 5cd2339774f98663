"""Algorithms that can run a kernel, each with its schedules.

An algorithm is a way to compute (a whole row in registers, several passes, one pass, a row split over many programs, …); a schedule is an
algorithm with its parameters. The renderers' own `schedules` list what is usually worth measuring; this module lists every correct
schedule, because which one pays is what is learnt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dvk.composer.codegen import cpp
from dvk.composer.codegen.analysis.online import SoftmaxPair, online_pair
from dvk.composer.codegen.triton import matmul_schedule
from dvk.composer.codegen.triton import schedule as triton_schedule
from dvk.composer.codegen.triton.matmul import depth_of
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.matmul_form import form_of
from dvk.composer.ir.symint import power
from dvk.records import BackendName

Schedule = dict[str, Any]
Algorithms = dict[str, list[Schedule]]
FEW = 5
"""Number of matmul schedules to keep: they are ordered by a model, and the last ones never pay."""
WRITTEN_OUT = 4
"""Longest short side of a matmul that is written with separate lines for each row or column: longer ones give programs of thousands of
words."""
MIN_LOOP = 8
"""Minimum row length, in elements, for which a loop pays."""


def algorithms(kernel: Kernel, backend: BackendName) -> Algorithms:
    """Map each algorithm to its schedules, the usual one first. Every pointwise, row and column kernel of more than a few elements has at
    least three."""
    if backend == "cpp":
        found = _cpp(kernel)
    else:
        found = {"pointwise": _triton_pointwise, "product": _triton_products}.get(
            kernel.family, _triton_rows
        )(kernel)
    return {name: options for name, options in found.items() if options}


def usual(kernel: Kernel, backend: BackendName) -> Schedule:
    """The default schedule of a kernel."""
    if kernel.family == "product":
        return _products(kernel)[0]
    return (cpp if backend == "cpp" else triton_schedule).default_schedule(kernel)


def name_of(kernel: Kernel, schedule: Schedule, backend: BackendName) -> str:
    """The algorithm of a schedule."""
    return _cpp_name(kernel, schedule) if backend == "cpp" else _triton_name(kernel, schedule)


def numbers(kernel: Kernel, schedule: Schedule) -> tuple[str, ...]:
    """The parameters of a schedule as phrases: `block 1024`, `warps 8`. Parameters without effect are omitted."""
    rows = kernel.family == "row" or schedule.get("walk") == "strided"
    words = {
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
    idle = (
        {"chunk"}
        if schedule.get("form") == "flat"
        or (schedule.get("parallel") in ("rows", "serial") and rows)
        else set()
    )
    idle |= {"splits"} if schedule.get("splits") == 1 else set()
    if "depth" in schedule:
        schedule = {**schedule, "depth": depth_of(kernel, schedule)}
    result = [
        f"{words[k]} {schedule[k]}"
        for k in words
        if k in schedule and schedule[k] and k not in idle
    ]
    if schedule.get("xblock", 1) > 1:
        result.insert(
            0, f"{'columns' if schedule['kind'] in ('tile',) else 'rows'} {schedule['xblock']}"
        )
    return tuple(result)


# ------------------------------------------------------------------ Triton


def _triton_name(kernel: Kernel, schedule: Schedule) -> str:
    kind = schedule["kind"]
    if kernel.family == "product":
        how = "skinny" if kind == "skinny" else "tiled threefold" if "dot" in schedule else "tiled"
        return f"product {how}{' split' if schedule['splits'] > 1 else ''}"
    if kernel.family == "pointwise":
        return {"flat": "flat", "tile": "tiled", "stride": "grid stride"}[kind]
    words = {"persistent": "registers", "looped": "looped", "split": "split"}[kind]
    pair = online_pair(kernel)
    online = schedule.get("online") if pair is not None else None
    how = (
        ""
        if not online or (kind == "persistent" and online != "moments")
        else " online"
        if isinstance(pair, SoftmaxPair)
        else " moments"
        if online == "moments" and kind != "split"
        else " welford"
    )
    return f"{kernel.family} {words}{how}"


def _named(kernel: Kernel, options: Iterable[Schedule], backend: BackendName) -> Algorithms:
    result: Algorithms = {}
    for option in options:
        schedules = result.setdefault(name_of(kernel, option, backend), [])
        if all(numbers(kernel, option) != numbers(kernel, o) for o in schedules):
            schedules.append(option)
    return result


def _triton_pointwise(kernel: Kernel) -> Algorithms:
    options = list(triton_schedule.schedules(kernel))
    total = kernel.num_rows
    blocks = [b for b in (256, 512, 1024, 2048, 4096) if b <= max(power(total), 256)]
    options += [
        {"kind": "flat", "block": b, "warps": w} for b in blocks for w in (4, 8) if b >= 32 * w
    ]
    if total > 1:
        options += [
            {"kind": "stride", "block": b, "programs": p, "warps": w}
            for p in (132, 264, 528, 1056)
            for b, w in ((1024, 4), (2048, 8), (512, 4))
            if b < 2 * power(total)
        ] or [{"kind": "stride", "block": power(total), "programs": 132, "warps": 1}]
    rows = [v for v in kernel.rows if v.size > 1]
    if len(rows) > 1:
        shapes = ((32, 32, 4), (4, 256, 4), (16, 64, 4), (64, 64, 8))
        options += [{"kind": "tile", "yblock": y, "xblock": x, "warps": w} for y, x, w in shapes]
    elif rows:
        # One contiguous run of memory: a tile of one row.
        options += [
            {"kind": "tile", "yblock": 1, "xblock": min(x, power(total)), "warps": w}
            for x, w in ((512, 4), (1024, 8))
        ]
    return _named(kernel, options, "triton")


def _triton_products(kernel: Kernel) -> Algorithms:
    return {
        name: options[:FEW] for name, options in _named(kernel, _products(kernel), "triton").items()
    }


def _products(kernel: Kernel) -> list[Schedule]:
    """Matmul schedules for training programs, the best guess first."""
    form, options = form_of(kernel), matmul_schedule.ranked(kernel)
    assert form is not None
    lines = min(form.sizes[1:]) * len(form.terms)
    return [o for o in options if o["kind"] == "product" or lines <= WRITTEN_OUT] or options


def _triton_rows(kernel: Kernel) -> Algorithms:
    options = list(triton_schedule.schedules(kernel))
    length, rows = kernel.row_length, kernel.num_rows
    pair = online_pair(kernel)
    column = kernel.family == "column"
    whole = power(length)
    if whole * (16 if column else 1) <= triton_schedule.MAX_PERSISTENT:
        for xblock in (16, 32, 8) if column else (1, 2, 4, 8):
            if whole * xblock <= triton_schedule.MAX_PERSISTENT and (
                column or xblock == 1 or whole * xblock <= 4096
            ):
                warps = min(max(power(whole * xblock) // 512, 1), 16)
                options += [
                    {"kind": "persistent", "xblock": xblock, "warps": w}
                    for w in (warps, min(2 * warps, 32))
                ]
    shapes = (
        ((32, 32, 4), (64, 16, 4), (16, 64, 4), (128, 16, 8))
        if column
        else tuple(
            (1, r, w)
            for r, w in (
                (8192, 16),
                (4096, 8),
                (2048, 8),
                (1024, 4),
                (512, 4),
                (256, 2),
                (128, 1),
                (32, 1),
                (8, 1),
            )
        )
    )
    usable = [s for s in shapes if s[1] < length] or [
        (s[0], 8, 1) for s in shapes[:1] if length > MIN_LOOP
    ]
    options += [
        {"kind": "looped", "xblock": x, "rblock": r, "warps": w, "evict": True}
        for x, r, w in usable[:4]
    ]
    if length >= 2 * MIN_LOOP:
        for x, r, w in usable[:3]:
            pieces = max(
                2,
                min(
                    power(2 * triton_schedule.NUM_SMS // max(-(-rows // x), 1)),
                    power(max(length // r, 2)),
                    64,
                ),
            )
            options.append(
                {
                    "kind": "split",
                    "xblock": x,
                    "rblock": min(r, max(power(length) // pieces, 8)),
                    "splits": pieces,
                    "warps": w,
                }
            )
    extra: list[Schedule] = []
    for option in options:
        plain = {k: v for k, v in option.items() if k != "online"}
        if pair is None:
            extra.append(plain)
        elif option["kind"] == "looped":
            extra += [plain, {**plain, "online": True}]
            extra += [] if isinstance(pair, SoftmaxPair) else [{**plain, "online": "moments"}]
        elif option["kind"] == "persistent":
            extra += (
                [plain]
                if isinstance(pair, SoftmaxPair)
                else [plain, {**plain, "online": "moments"}]
            )
        else:
            extra += [{**plain, "online": True}, plain]
    first = triton_schedule.default_schedule(kernel)
    return _named(kernel, [first, *extra], "triton")


# ------------------------------------------------------------------ C++


def _cpp_name(kernel: Kernel, schedule: Schedule) -> str:
    parallel = schedule["parallel"]
    if kernel.family == "pointwise":
        if schedule.get("form") == "flat":
            return "flat"
        lane = kernel.rows[-1].size if kernel.rows else 1
        whole = "lines" if schedule["chunk"] >= lane and len(kernel.rows) > 1 else "pieces"
        return "serial" if parallel == "serial" else whole
    if kernel.family == "column" and schedule.get("walk") != "strided":
        return "column blocked"
    words = kernel.family if kernel.family == "row" else "column strided"
    pair = online_pair(kernel)
    if parallel == "inner":
        return f"{words} split"
    if schedule.get("online") and pair is not None:
        return f"{words} {'online' if isinstance(pair, SoftmaxPair) else 'moments'}"
    if schedule.get("block"):
        return f"{words} blocks"
    if parallel == "serial":
        return f"{words} serial"
    return f"{words} recomputed" if schedule.get("keep") is False else f"{words} looped"


def _cpp(kernel: Kernel) -> Algorithms:
    options = list(cpp.schedules(kernel))
    base = cpp.default_schedule(kernel)
    lane = kernel.rows[-1].size if kernel.rows else 1
    if kernel.family == "pointwise":
        options += [
            {**base, "chunk": max(64, power(lane))},
            {**base, "chunk": 1024},
            {**base, "chunk": max(16, power(lane) // 4)},
        ]
        options += [
            {**base, "form": "flat"},
            {**base, "form": "flat", "width": 256},
            {**base, "parallel": "serial"},
        ]
        return _named(kernel, options, "cpp")
    walks: list[Schedule] = [{}] if kernel.family == "row" else [{"walk": "strided"}]
    for walk in walks:
        plain = {**base, **walk, "parallel": "rows", "chunk": 4096}
        options += [
            plain,
            {**plain, "parallel": "inner"},
            {**plain, "parallel": "inner", "chunk": 1024},
            {**plain, "parallel": "serial"},
        ]
        options += [{**plain, "block": b} for b in (256, 1024) if b < kernel.reduced[-1].size] or [
            {**plain, "block": b} for b in (8,) if b < kernel.reduced[-1].size
        ]
        if online_pair(kernel) is not None:
            options += [{**plain, "online": True}, {**plain, "online": True, "width": 256}]
        if kernel.num_stages > 1 and any(
            i.op in ("exp", "erf", "tanh", "sigmoid", "log", "log1p", "expm1")
            for i in kernel.instrs
        ):
            options.append({**plain, "keep": False})
    if kernel.family == "column":
        options += [{**base, "chunk": c} for c in (16, 64, 128, 512)]
    return _named(kernel, options, "cpp")


def elements(kernel: Kernel) -> int:
    """Number of elements that a kernel iterates over."""
    return math.prod(v.size for v in (*kernel.rows, *kernel.reduced))
