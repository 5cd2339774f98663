"""Render a kernel as Triton: the counterpart of `cpp.py`.

`schedules` lists how a kernel may be cut into programs (see `triton_schedule`), `render` writes the
functions, `launch` the lines that run them. Sizes and strides are literals in the text, so divisions
are by constants and masks vanish where sizes divide. Half types are computed in float32; NaN
propagates through max and min; accuracy of the scalar functions is described in `triton_math`.

Not covered: matrix products, scatter, complex types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dvk.composer import triton_math
from dvk.composer.kernel import Kernel
from dvk.composer.triton_schedule import axes, default_schedule, schedules
from dvk.composer.triton_split import split
from dvk.composer.triton_write import Function, looped, persistent, pointwise

__all__ = ["default_schedule", "functions", "launch", "prelude", "render", "schedules"]


def render(kernel: Kernel, schedule: dict[str, Any], inplace: dict[int, int] | None = None) -> str:
    """Triton source of one kernel, without the prelude.

    Args:
        inplace: output number → input number that shares its memory. Each element is read by the program that writes it,
            before it is written, provided that the store belongs to the kernel's last stage; nothing else changes.
    """
    del inplace  # Triton assumes no aliasing either way; the caller's condition (last stage, same offset) is what makes it safe.
    texts = [f.text for f in functions(kernel, schedule)[0]]
    return "\n\n\n".join([f"# {kernel.summary}\n{texts[0]}", *texts[1:]]) + "\n"


def launch(kernel: Kernel, schedule: dict[str, Any], inputs: list[str], outputs: list[str]) -> list[str]:
    """Python lines that run the kernel on tensors; outputs exist already, partial results are allocated here."""
    parts, buffers = functions(kernel, schedule)
    names = {**{f"a{n}": name for n, name in enumerate(inputs)}, **{f"o{n}": name for n, name in enumerate(outputs)}}
    lines = []
    for kind, count in buffers.items():
        names[f"part_{kind}"] = f"_{kernel.name}_{kind}"
        lines.append(f"_{kernel.name}_{kind} = {[*outputs, *inputs][0]}.new_empty({count}, dtype=torch.{kind})")
    for function in parts:
        args = ", ".join(names[p] for p in function.params)
        lines.append(f"{function.name}[({function.grid},)]({args}, num_warps={function.warps})")
    return lines


def prelude(kernels: Iterable[Kernel]) -> str:
    """Helper functions the kernels need; empty when they need none."""
    return triton_math.prelude(kernels)


def functions(kernel: Kernel, schedule: dict[str, Any]) -> tuple[list[Function], dict[str, int]]:
    """What `render` writes and `launch` calls, and the buffers between the calls (type → elements)."""
    cut = axes(kernel, schedule)
    if schedule["kind"] == "split":
        return split(kernel, schedule, cut)
    write = {"flat": pointwise, "tile": pointwise, "persistent": persistent, "looped": looped}[schedule["kind"]]
    return [write(kernel, schedule, cut)], {}
