"""Elementwise operators of a step and addresses in Triton, for loops over time steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dvk.composer.ir.time_scan import Access, TimeScan

TEXT = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "neg": "-{0}",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "log": "tl.log({0})",
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))",
    "tanh": "dvk_tanh({0})",
    "silu": "{0} / (1.0 + tl.exp(-{0}))",
    "relu": "tl.where({0} < 0.0, 0.0, {0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})",
    "abs": "tl.abs({0})",
    "reciprocal": "1.0 / {0}",
    "square": "{0} * {0}",
}


def power(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def address(base: str, access: Access, indices: Mapping[int, str] | None = None) -> str:
    """Places of a tensor in the first step; the index of an axis is `i` and its number unless `indices` has another text."""
    parts = [base] + ([str(access.base)] if access.base else [])
    for axis, stride in access.strides:
        index = (indices or {}).get(axis, f"i{axis}")
        parts.append(f"{index} * {stride}" if stride != 1 else index)
    return " + ".join(parts)


def launched(scan: TimeScan, name: str, body: Iterable[str], blocks: int, warps: int) -> str:
    """Source text of a loop's function, of operands `a…` and results `o…`, and its launcher.

    Args:
        blocks: programs for each index of the outer axes.
    """
    operands = [f"a{n}" for n in range(len(scan.operands))]
    given = ", ".join([*operands, *(f"o{n}" for n in range(len(scan.results)))])
    lines = [f"# {scan.summary}", "@triton.jit", f"def {name}({given}):"]
    lines += [f"    {line}" for line in body]
    programs = blocks * math.prod(scan.sizes[axis] for axis in scan.outer)
    run = f"run_{name} = dvk_launcher({name}, {programs}, {warps})"
    return "\n".join([*lines, "", "", run, ""])
