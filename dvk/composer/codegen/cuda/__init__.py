"""Render a kernel as CUDA C++ for NVRTC: the third counterpart of `cpp/__init__.py` and `triton/__init__.py`.

`schedules` lists how threads may share a kernel (see `schedule`), `render` writes the functions, `launch` the lines that run them, `specs`
the arguments of the drop-in's launcher (see `cuda_launch`). Sizes and strides are literals in the source, those of a range of sizes
arguments of the function and of its launch; fp16 and bf16 are computed in float32; NaN propagates through max and min.

Not covered: matmuls, scatter, complex types, shared-memory tiles for transposes.
"""

from __future__ import annotations

from collections.abc import Iterable

from dvk.composer.codegen.analysis.centred import centred
from dvk.composer.codegen.base import launch_lines
from dvk.composer.codegen.cuda.forms import pointwise, split, whole
from dvk.composer.codegen.cuda.scalar import PRELUDE
from dvk.composer.codegen.cuda.schedule import default_schedule, schedules
from dvk.composer.codegen.cuda.writer import CudaFunction
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.cuda import (
    CudaFlat,
    CudaLooped,
    CudaPersistent,
    CudaSchedule,
    CudaSplit,
)
from dvk.composer.ir.symint import as_cpp

FLAGS = ("--std=c++17", "--fmad=false")
"""Compiler options: products are rounded before they are added, as in eager PyTorch; see `cpp.FLAGS`."""

CDIV = "template <class A, class B> DVK auto cdiv(A a, B b) -> decltype(a + b) { return (a + b - 1) / b; }\n"
"""Divide and round up: `ir.symint` writes it for the number of slices of a size that is known at run time."""

__all__ = [
    "CDIV",
    "FLAGS",
    "default_schedule",
    "functions",
    "launch",
    "module",
    "prelude",
    "render",
    "schedules",
]


def render(kernel: Kernel, schedule: CudaSchedule, inplace: dict[int, int] | None = None) -> str:
    """CUDA source of one kernel, without the prelude.

    Args:
        inplace: output index → index of the input that shares its memory (same offset in every element).
    """
    parts, _ = functions(kernel, schedule, inplace)
    return (
        "\n\n".join([f"// {kernel.summary}\n{parts[0].text}", *(f.text for f in parts[1:])]) + "\n"
    )


def launch(
    kernel: Kernel, schedule: CudaSchedule, inputs: list[str], outputs: list[str]
) -> list[str]:
    """Python lines that run the kernel on tensors; see `launch_lines`."""
    return launch_lines(kernel, functions(kernel, schedule), inputs, outputs, "_dvk_")


def prelude(kernels: Iterable[Kernel]) -> str:
    """Types and device functions that every kernel may use."""
    del kernels
    return PRELUDE


def functions(
    kernel: Kernel, schedule: CudaSchedule, inplace: dict[int, int] | None = None
) -> tuple[list[CudaFunction], dict[str, int]]:
    """The functions that `render` writes and `launch` calls, and the buffers between the calls (type → elements)."""
    aliased = {
        name for out, source in (inplace or {}).items() for name in (f"o{out}", f"a{source}")
    }
    schedule.require_family(kernel.family)
    kernel = centred(kernel)
    with as_cpp():
        match schedule:
            case CudaSplit():
                return split(kernel, schedule, aliased)
            case CudaFlat():
                return [pointwise(kernel, schedule, aliased)], {}
            case CudaPersistent() | CudaLooped():
                return [whole(kernel, schedule, aliased)], {}
    raise CannotCompose(f"CUDA has no form for {schedule}")


def module(
    kernels: list[Kernel], schedules: dict[str, CudaSchedule], texts: list[str]
) -> tuple[str, str, list[str]]:
    """Module text of the CUDA source, one string per kernel; the common preamble; and the lines that load them."""
    if not kernels:
        return "", "", []
    parts = [f for k in kernels for f in functions(k, schedules[k.name])[0]]
    sources = ",\n".join(f"r'''\n{text}'''" for text in texts)
    table = "".join(
        f"\n    ({n}, {f.name!r}, {None if k.size_arguments else f.grid}, {f.threads}),"
        for n, k in enumerate(kernels)
        for f in functions(k, schedules[k.name])[0]
    )
    names = [f"_dvk_{f.name}" for f in parts]
    by_size = " (None: by the sizes)" if any(k.size_arguments for k in kernels) else ""
    text = (
        f"_DVK_SOURCES = [{sources}]\n\n_DVK_FUNCTIONS = [{table}\n]\n"
        f"# Each: number of its source, name, blocks{by_size}, threads a block.\n"
        + "\n".join(f"{n} = None" for n in names)
    )
    shared = PRELUDE + (CDIV if any("cdiv(" in text for text in texts) else "")
    runtime = f"_DVK_FLAGS = {FLAGS!r}\n_DVK_PRELUDE = r'''\n{shared}'''"
    load = [
        f"global {', '.join(names)}",
        f"if {names[0]} is None:",
        "    launchers = dvk_loaded(dvk_cuda_load, _DVK_PRELUDE, _DVK_SOURCES, _DVK_FUNCTIONS, _DVK_FLAGS)",
        "    if launchers is None:",
        "        return False",
        f"    {', '.join(names)}{',' if len(names) == 1 else ''} = launchers",
    ]
    return text, runtime, load
