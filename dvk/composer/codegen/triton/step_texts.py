"""Elementwise operators of a step and addresses in Triton, for loops over time steps."""

from __future__ import annotations

from collections.abc import Mapping

from dvk.composer.ir.time_scan import Access

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
