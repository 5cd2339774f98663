"""Render a kernel as C++: `extern "C"`, OpenMP over rows, SIMD over the fastest variable.

`schedules` lists the schedules worth measuring, `render` writes a function (`render`; windows `pooling`, scans `scan`, matmuls `matmul`,
convolutions `convolution`), `prelude` the helper code (`scalar`), FLAGS the compiler flags.

Not covered: scatter to many places of a row, types wider than 8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dvk.composer.codegen.analysis.centred import centred
from dvk.composer.codegen.cpp import matmul, pooling, scan
from dvk.composer.codegen.cpp.half_bits import as_bits
from dvk.composer.codegen.cpp.render import KernelWriter
from dvk.composer.codegen.cpp.scalar import prelude
from dvk.composer.codegen.cpp.vectors import widths
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.cpp import CppForm, CppLoops, CppSchedule, Parallel
from dvk.composer.ir.symint import as_cpp
from dvk.target import DEFAULT, Cpu, Target

FLAGS = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-builtin-expf",
    "-fno-builtin-exp",
    "-fopenmp",
    "-shared",
    "-fPIC",
)
"""Compiler flags: strict IEEE except errno and traps, enough for GCC to vectorise, without -ffast-math's loss of NaN and infinity.

GCC may not know exp by name: it would fold a clamped argument back into a branch around the call, and not vectorise. Each product is
rounded before it is added, as in eager: with contraction, √(x·x − y·y) for x = y is the root of a rounding error, NaN half of the time.
Contraction gains nothing here, since kernels are memory bound.
"""

LOAD = (
    "library = dvk_loaded(dvk_compile, _DVK_PRELUDE + _DVK_SOURCE, _DVK_FLAGS)",
    "if library is None:",
    "    return False",
)
"""Lines that compile and load the kernel's source."""

SCHEDULES_BY_FAMILY: dict[str, Callable[[Kernel, Cpu], list[CppSchedule]]] = {
    "window": pooling.schedules,
    "product": matmul.schedules,
    "scan": scan.schedules,
    "scan_column": scan.schedules,
}
"""Kernel families that list their schedules themselves."""

__all__ = ["FLAGS", "LOAD", "default_schedule", "prelude", "render", "runtime", "schedules"]


def default_schedule(kernel: Kernel, target: Target = DEFAULT) -> CppSchedule:
    """The default schedule: what a person would write first."""
    return schedules(kernel, target)[0]


def default_loops(kernel: Kernel, cpu: Cpu = DEFAULT.cpu) -> CppLoops:
    """The default loops over a pointwise, row or column kernel."""
    few_rows = kernel.family == "row" and kernel.num_rows < 4
    return CppLoops(
        parallel="inner" if few_rows else "rows",
        chunk=256 if kernel.family == "column" else 4096,
        width=widths(cpu)[0],
    )


def schedules(kernel: Kernel, target: Target = DEFAULT) -> list[CppSchedule]:
    """The alternatives worth measuring, the default first."""
    if kernel.family in SCHEDULES_BY_FAMILY:
        return SCHEDULES_BY_FAMILY[kernel.family](kernel, target.cpu)
    first = default_loops(kernel, target.cpu)
    if kernel.family == "row_sums":
        return [replace(first, width=width) for width in widths(target.cpu)]
    options: list[CppSchedule] = [first]
    chunks = (
        (64, 256, 1024)
        if kernel.family == "column"
        else (1024, 4096, 16384)
        if kernel.family == "pointwise"
        else (4096,)
    )
    ways: tuple[Parallel, ...] = (first.parallel,)
    if kernel.family == "row" and kernel.num_rows < 64:
        ways = "rows", "inner"
    options += [
        CppLoops(parallel=parallel, chunk=chunk, width=width)
        for parallel in ways
        for chunk in chunks
        for width in widths(target.cpu)
    ]
    return list(dict.fromkeys(options))


def render(kernel: Kernel, schedule: CppSchedule, inplace: dict[int, int] | None = None) -> str:
    """C++ source of one kernel, without the prelude.

    Args:
        inplace: output index → index of the input that shares its memory (same offset in every element).
    """
    schedule.require_family(kernel.family)
    assert isinstance(schedule, CppForm), "every C++ schedule is of one of the three forms"
    with as_cpp():
        return KernelWriter(as_bits(centred(kernel)), schedule, inplace or {}).function()


def runtime(before: str) -> str:
    """Module text of a drop-in with C++: the start of its source, and the lines that compile it."""
    return f"_DVK_FLAGS = {FLAGS!r}\n_DVK_PRELUDE = r'''\n{before}'''"
