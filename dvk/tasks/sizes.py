"""Sizes of tensors in bytes, from their specs alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from dvk.records import Task


def num_bytes(task: Task) -> int:
    """Return the bytes of a task's inputs and outputs, each counted once."""
    return tensor_bytes((spec.dtype, spec.shape) for spec in (*task.inputs, *task.outputs))


def tensor_bytes(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> int:
    """Return the bytes of tensors by dtype and shape; dtypes have torch's names: `bfloat16`, `complex64`, `bool`."""
    return sum(math.prod(shape) * _width(dtype) for dtype, shape in tensors)


def _width(dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1
