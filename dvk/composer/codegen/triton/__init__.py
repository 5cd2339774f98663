"""Render a kernel as Triton: the counterpart of `cpp/__init__.py`.

`schedules` lists how a kernel may be cut into programs (see `schedule`), `render` writes the functions, `launch` the lines that run them.
Sizes and strides are literals in the source, so divisions are by constants and masks vanish where sizes divide. fp16 and bf16 are computed
in float32; NaN propagates through max and min; `scalar` describes the accuracy of the scalar functions.

Not covered: scatter that overwrites many places of a row, complex types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dvk.composer.codegen.analysis.centred import centred
from dvk.composer.codegen.analysis.tiles import TileAxis
from dvk.composer.codegen.base import launch_lines
from dvk.composer.codegen.triton import attention, lanes, matmul, scalar, scan
from dvk.composer.codegen.triton.forms import looped, persistent, pointwise, strided
from dvk.composer.codegen.triton.pooling import window
from dvk.composer.codegen.triton.row_sums import blocks_of_rows
from dvk.composer.codegen.triton.schedule import axes, default_schedule, schedules
from dvk.composer.codegen.triton.split import split
from dvk.composer.codegen.triton.writer import TritonFunction
from dvk.composer.ir.attention_kernel import AttentionKernel
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import expect
from dvk.composer.ir.schedules.triton import (
    TritonAttention,
    TritonFlat,
    TritonLanes,
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

__all__ = ["default_schedule", "functions", "launch", "module", "prelude", "render", "schedules"]


LAUNCHES = re.compile(r"^run_(\w+) = dvk_launcher\(\1, (.+)\)$")
SIZED_LAUNCHES = re.compile(r"^run_(\w+) = dvk_sized_launcher\(\1, (\d+)(?:, \d+)?\)$")
LAUNCHER = """\
def dvk_launcher(kernel, grid, warps):
    # Triton analyses its arguments at every call. Calling the compiled kernel as Triton itself does halves the host's time (Triton's
    # launch hooks, for its own profilers, see only the first call), and PyTorch's launcher, which TorchInductor uses, takes a tenth less.
    # The caller's guards cover the analysis except device and 16-byte alignment. Triton asks the driver where each tensor is; an address
    # it takes as it is. A recorder of launches wants the tensors.
    import functools, operator, sys

    ready = {}
    direct = None if torch.version.hip else getattr(torch._C, "_StaticCudaLauncher", None)
    scratch = "global_scratch_size", "profile_scratch_size"
    address, joined, either = torch.Tensor.data_ptr, functools.reduce, operator.or_
    # PyTorch rounds a product before it adds to it; a softmax of products has a largest element above 1 otherwise.
    fused = "dot" in kernel.fn.__code__.co_names

    def launch(*tensors):
        device = tensors[0].get_device()
        places = list(map(address, tensors))
        key = (device, *[p & 15 for p in places]) if joined(either, places) & 15 else device
        known = ready.get(key)
        if known is not None:
            run, stream_of, function, about, types, record = known
            if types:  # the scratch memory of a kernel that has none is the last of its arguments
                places += [None] * (len(types) - len(places))
                run(function, grid, 1, 1, warps, about, types, tuple(places), stream_of(device))
            else:
                run(grid, 1, 1, stream_of(device), function, about, None, None, None, *(tensors if record else places))
            return
        compiled = kernel[(grid,)](*tensors, num_warps=warps, enable_fp_fusion=fused)
        if hasattr(compiled, "asm"):  # the interpreter compiles nothing
            stream_of = triton.runtime.driver.active.get_current_stream
            record = "dvk_record" in sys.modules
            made, function = compiled.metadata, compiled.function
            special = any(getattr(made, name, 0) for name in (*scratch, "launch_cooperative_grid", "launch_pdl"))
            if direct is None or record or special or made.num_ctas != 1:
                ready[key] = compiled.run, stream_of, function, compiled.packed_metadata, "", record
            else:
                types = "O" * (len(tensors) + sum(hasattr(made, name) for name in scratch))
                ready[key] = direct._launch_kernel, stream_of, function, made.shared, types, record

    return launch
"""


SIZED_LAUNCHER = """\
def dvk_sized_launcher(kernel, warps, wholes=0):
    # As dvk_launcher, for kernels with sizes as arguments: the first argument of a launch is the number of programs. The last `wholes`
    # arguments are constants of the kernel, which is compiled for each of their values.
    import sys

    ready = {}
    fused = "dot" in kernel.fn.__code__.co_names

    def launch(grid, *args):
        device = args[0].get_device()
        given = args[: len(args) - wholes]
        places = [a if type(a) is int else a.data_ptr() for a in given]
        # Triton passes a size that does not fit in 32 bits in another type.
        kinds = [a >> 31 if type(a) is int else p & 15 for a, p in zip(given, places)]
        key = (device, *args[len(given) :], *kinds)
        known = ready.get(key)
        if known is not None:
            run, stream_of, function, packed, record, constants = known
            passed = given if record else places
            run(grid, 1, 1, stream_of(device), function, packed, None, None, None, *passed, *constants)
            return
        compiled = kernel[(grid,)](*args, num_warps=warps, enable_fp_fusion=fused)
        if hasattr(compiled, "asm"):
            stream_of = triton.runtime.driver.active.get_current_stream
            # Triton 3.2 passes no constants.
            constants = args[len(given) :] if wholes and "constexpr" in compiled.src.signature.values() else ()
            record = "dvk_record" in sys.modules
            ready[key] = compiled.run, stream_of, compiled.function, compiled.packed_metadata, record, constants

    return launch
"""


LIMITED = re.compile(r"dvk_launcher\(\w+, \d+, \d+, \d+\)")
LIMITS = (
    (
        "def dvk_launcher(kernel, grid, warps):",
        "def dvk_launcher(kernel, grid, warps, registers=None):",
    ),
    ("num_warps=warps,", "num_warps=warps, maxnreg=registers,"),
)


def launcher(lines: str) -> str:
    """The launcher that lines of kernels need: one that limits registers if one of them does."""
    text = LAUNCHER
    for plain, limited in LIMITS if LIMITED.search(lines) else ():
        assert plain in text
        text = text.replace(plain, limited)
    return text


def render(kernel: Kernel, schedule: TritonSchedule, inplace: dict[int, int] | None = None) -> str:
    """Triton source of one kernel, without the prelude: its functions and a launcher for each.

    Args:
        inplace: output index → index of the input that shares its memory. Triton assumes nothing about aliasing; the caller must ensure
        that such a store belongs to the last stage and has the offset of the read.
    """
    del inplace
    parts, _ = functions(kernel, schedule)
    texts = [f"# {kernel.summary}\n{parts[0].text}", *(f.text for f in parts[1:])]
    launchers = [
        f"run_{f.name} = dvk_sized_launcher({f.name}, {f.warps}{wholes(f)})"
        if kernel.size_arguments
        else f"run_{f.name} = dvk_launcher({f.name}, {f.launcher})"
        for f in parts
    ]
    return "\n\n\n".join([*texts, "\n".join(launchers)]) + "\n"


def wholes(function: TritonFunction) -> str:
    """The last argument of a launcher: how many constants its kernel takes; nothing if it takes none."""
    number = sum("bit_length" in given for given in function.params)
    return f", {number}" if number else ""


def launch(
    kernel: Kernel, schedule: TritonSchedule, inputs: list[str], outputs: list[str]
) -> list[str]:
    """Python lines that run the kernel on tensors; see `launch_lines`."""
    return launch_lines(kernel, functions(kernel, schedule), inputs, outputs, "run_")


def prelude(kernels: Iterable[Kernel], text: str = "") -> str:
    """The launcher, and the helper functions the kernels need; `text` is what `render` wrote of them."""
    return "\n\n".join(part for part in (launcher(text), scalar.prelude(kernels)) if part)


def module(kernels: Iterable[Kernel], texts: Iterable[str]) -> tuple[str, str, list[str]]:
    """Module text of the kernels, launch lines to run later, and (none for Triton) lines that load them.

    Args:
        texts: results of `render`.
    """
    lines = "\n".join(texts).splitlines()
    launchers = [line for line in lines if LAUNCHES.match(line) or SIZED_LAUNCHES.match(line)]
    shown = "\n".join(
        SIZED_LAUNCHES.sub(
            r"# run_\1 launches it: programs by the sizes, warps = \2",
            LAUNCHES.sub(r"# run_\1 launches it: programs, warps = \2", line),
        )
        for line in lines
    )
    sized = any(SIZED_LAUNCHES.match(line) for line in launchers)
    plain = any(LAUNCHES.match(line) for line in launchers) or not sized
    both = [
        *([launcher("\n".join(launchers))] if plain else []),
        *([SIZED_LAUNCHER] if sized else []),
    ]
    return (
        "\n\n\n".join(part for part in (scalar.prelude(kernels, shown), shown) if part),
        "\n".join([*both, "", *launchers]),
        [],
    )


def functions(
    kernel: Kernel, schedule: TritonSchedule, plain: bool = False
) -> tuple[list[TritonFunction], dict[str, int]]:
    """The functions that `render` writes and `launch` calls, and the buffers between the calls (type → elements).

    Args:
        plain: every value is one of the kernel's; means are not computed around the first element.
    """
    schedule.require_family(kernel.family)
    if isinstance(kernel, AttentionKernel):
        return attention.functions(kernel, expect(schedule, TritonAttention))
    kernel = kernel if plain else centred(kernel)
    if isinstance(schedule, TritonLanes):
        return lanes.functions(kernel, schedule)
    if isinstance(schedule, matmul.MatmulSchedule):
        return matmul.functions(kernel, schedule)
    if isinstance(schedule, scan.ScanSchedule):
        return scan.functions(kernel, schedule)
    cut = axes(kernel, schedule)
    if isinstance(schedule, TritonSplit):
        return split(kernel, schedule, cut)
    return [_function(kernel, schedule, cut)], {}


def _function(kernel: Kernel, schedule: TritonSchedule, cut: list[TileAxis]) -> TritonFunction:
    """The one function of a kernel that needs no more."""
    match schedule:
        case TritonFlat() | TritonTile():
            return pointwise(kernel, schedule, cut)
        case TritonStride():
            return strided(kernel, schedule, cut)
        case TritonPersistent():
            return persistent(kernel, schedule, cut)
        case TritonLooped():
            return looped(kernel, schedule, cut)
        case TritonRowSums():
            return blocks_of_rows(kernel, schedule, cut)
        case TritonWindow() | TritonWindowTile():
            return window(kernel, schedule, cut)
    raise CannotCompose(f"Triton has no form for {schedule}")
