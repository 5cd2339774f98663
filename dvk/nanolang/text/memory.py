"""Memory of a program: what is allocated for a value, how far a tensor reaches, and where values are dropped."""

from __future__ import annotations

import re

from dvk.composer.ir.affine import contiguous_strides
from dvk.nanolang.lint.touched import TENSOR
from dvk.records import Node


def extent(node: Node) -> int:
    """Elements from a tensor's first in memory to its last."""
    assert node.shape is not None, "a tensor has one"
    strides = node.strides or contiguous_strides(node.shape)
    if not all(node.shape):
        return 0
    pairs = zip(node.shape, strides, strict=True)
    return 1 + sum((int(size) - 1) * int(stride) for size, stride in pairs)


def allocation(shape: str, strides: str, dtype: str, params: list[str], device: str) -> str:
    """An expression that allocates a tensor, on the device of the first parameter if there is one.

    Args:
        strides: as text; empty for row-major memory.
    """
    where = "" if params else f", device={device!r}"
    make = f"{params[0]}.new_empty" if params else "torch.empty"
    return (
        f"{make}_strided({shape}, {strides}, dtype=torch.{dtype}{where})"
        if strides
        else f"{make}({shape}, dtype=torch.{dtype}{where})"
    )


def with_drops(lines: list[list[str]], params: set[str]) -> list[str]:
    """Drop values after their last use so that the allocator can reuse their memory."""
    last: dict[str, int] = {}
    for number, step in enumerate(lines):
        for name in TENSOR.findall("\n".join(step)):
            last[name] = number
    result = []
    for number, step in enumerate(lines):
        result += step
        dead = [
            name
            for name, at in last.items()
            if at == number and name not in params and re.match(r"[vz]", name)
        ]
        if dead and number < len(lines) - 1:
            result.append(f"del {', '.join(dead)}")
    return result
