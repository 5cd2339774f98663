"""Reductions over short windows in C++: loops over the positions of a window around a vector loop over its outputs.

If everything outside the bounds is the reduction's identity, those iterations are skipped: each position of the window skips rows that do
not exist and starts and ends its vector loop at the edges, so that no element is compared. `unrolled` writes the positions one after the
other inside the vector loop, which keeps the results in registers.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from dvk.composer.codegen.cpp import convolution
from dvk.composer.codegen.cpp.rows import accumulate
from dvk.composer.codegen.cpp.scalar import inside
from dvk.composer.codegen.cpp.vectors import widths
from dvk.composer.codegen.cpp.writer import CppWriter
from dvk.composer.ir.affine import Affine, Var
from dvk.composer.ir.loops import Bound, Instr, Kernel, Ref
from dvk.composer.ir.primitives import reduction
from dvk.composer.ir.schedules.cpp import CppLoops, CppSchedule
from dvk.target import Cpu

MAX_UNROLLED = 32
"""Maximum window positions to unroll."""


def skipped(writer: CppWriter, reduces: list[Instr]) -> tuple[Bound, ...]:
    """Bounds outside of which every reduction only meets its identity."""
    sets: set[tuple[Bound, ...]] = set()
    for reduce in reduces:
        source = reduce.args[0]
        value = writer.k.instrs[source.id] if isinstance(source, Ref) else None
        if value is None or not value.bounds or value.fill != reduction(reduce.op).number:
            return ()
        sets.add(value.bounds)
    (bounds,) = sets if len(sets) == 1 else ((),)
    lane = writer.lane
    return bounds if lane is None or all(part.coef(lane) >= 0 for part, _ in bounds) else ()


def window_pass(writer: CppWriter, needed: list[Instr], reduces: list[Instr], chunk: int) -> None:
    """Write all windows of a slice of the lane."""
    for r in reduces:
        writer.start(r, chunk)
    if writer.loops.unrolled:
        _unrolled(writer, needed, reduces)
        return
    bounds = skipped(writer, reduces)
    writer.safe = frozenset(bounds)
    lane = writer.lane
    pending = list(bounds)
    opened: set[Var] = set()
    for number, var in enumerate(writer.k.reduced):
        writer.open(
            f"for (long {writer.names[var]} = 0; {writer.names[var]} < {var.size!r}; ++{writer.names[var]})"
        )
        opened.add(var)
        later = frozenset(writer.k.reduced[number + 1 :])
        for bound in [
            b for b in pending if not b[0].vars & later and (lane is None or lane not in b[0].vars)
        ]:
            pending.remove(bound)
            writer.put(f"if (!({inside(f'({writer.offset(bound[0])})', bound)})) continue;")
    start, stop = _edges(writer, pending, lane) if pending and lane is not None else ("0", "len")
    _open_lane(writer, start, stop)
    for instr in needed:
        writer.scalar(instr)
    for r in reduces:
        accumulate(writer, r, f"v{r.id}[l]")
    writer.close()
    writer.safe = frozenset()
    for _ in writer.k.reduced:
        writer.close()


def _edges(writer: CppWriter, bounds: list[Bound], lane: Var) -> tuple[str, str]:
    """Declare the range of the slice in which the lane is inside the bounds."""
    writer.put("long from = 0, to = len;")
    for part, count in bounds:
        step = part.coef(lane)
        rest = writer.offset(part + Affine.build({lane: -step}))
        up = f" + {step - 1}) / {step}" if step > 1 else ")"
        writer.open("")
        writer.put(
            f"const long at = {rest} + lo * {step};"
            if step > 1
            else f"const long at = {rest} + lo;"
        )
        writer.put(
            f"if (at < 0) {{ const long first = (-at{up}; from = first > from ? first : from; }}"
        )
        writer.put(f"const long last = at < {count!r} ? ({count!r} - at{up} : 0;")
        writer.put("to = last < to ? last : to;")
        writer.close()
    return "from", "to"


def _unrolled(writer: CppWriter, needed: list[Instr], reduces: list[Instr]) -> None:
    """Write the window's positions one after the other inside the vector loop."""
    _open_lane(writer, "0", "len")
    for r in reduces:
        writer.put(f"{writer.accumulator(r)} w{r.id} = v{r.id}[l];")
    for places in itertools.product(*(range(v.size) for v in writer.k.reduced)):
        writer.open("")
        writer.put(
            "const long "
            + ", ".join(
                f"{writer.names[v]} = {at}" for v, at in zip(writer.k.reduced, places, strict=True)
            )
            + ";"
        )
        for instr in needed:
            writer.scalar(instr)
        for r in reduces:
            accumulate(writer, r, f"w{r.id}")
        writer.close()
    for r in reduces:
        writer.put(f"v{r.id}[l] = w{r.id};")
    writer.close()


def _open_lane(writer: CppWriter, start: str, stop: str) -> None:
    """Open a vector loop over part of the slice."""
    writer.put("#pragma omp simd")
    writer.open(f"for (long l = {start}; l < {stop}; ++l)")
    if writer.lane is not None:
        writer.put(f"const long {writer.names[writer.lane]} = lo + l;")


def schedules(kernel: Kernel, cpu: Cpu) -> list[CppSchedule]:
    """The alternatives worth measuring, the default first."""
    every = widths(cpu)
    options = [
        CppLoops(parallel="rows", chunk=chunk, width=width)
        for chunk in (256, 1024)
        for width in every
    ]
    if kernel.row_length <= MAX_UNROLLED and not any(i.bounds for i in kernel.instrs):
        # With a comparison at every position it would not be one vector loop. A window of a few positions ends before results kept in
        # memory pay.
        at = 0 if kernel.row_length <= 4 else 1
        options[at:at] = [replace(one, unrolled=True) for one in options[: len(every)]]
    direct = convolution.schedules(kernel, cpu)
    return [
        *direct,
        *options[: 2 if direct else None],
        CppLoops(parallel="rows", chunk=4096, width=every[0], walk="strided"),
    ]
