"""Sizes of tensors in bytes, from their specs alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from dvk.records import ShapeVariant, Task

CONTEXT_BYTES = 1 << 29
"""GPU memory of a process that has run something there."""
UNKNOWN_BYTES = 4 << 30
"""Assumed of a reference that cannot be estimated."""


def num_bytes(task: Task) -> int:
    """Return the bytes of a task's inputs and outputs, each counted once."""
    return tensor_bytes((spec.dtype, spec.shape) for spec in (*task.inputs, *task.outputs))


def input_bytes(task: Task, variant: ShapeVariant | None = None) -> int:
    """Return the bytes of a task's inputs, at native sizes or at a variant's."""
    sizes = (
        {}
        if variant is None
        else {(name, dimension): size for name, dimension, size in variant.changes}
    )
    return tensor_bytes(
        (spec.dtype, tuple(sizes.get((spec.name, d), n) for d, n in enumerate(spec.shape)))
        for spec in task.inputs
    )


def bytes_to_run(peak_bytes: int | None) -> int:
    """Return GPU memory of running a reference twice, with what the first call returned; an unknown peak counts as small."""
    return CONTEXT_BYTES + (2 * peak_bytes if peak_bytes is not None else UNKNOWN_BYTES)


def tensor_bytes(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> int:
    """Return the bytes of tensors by dtype and shape; dtypes have torch's names: `bfloat16`, `complex64`, `bool`."""
    return sum(math.prod(shape) * _width(dtype) for dtype, shape in tensors)


def _width(dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1
