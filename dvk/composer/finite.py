"""What is equal in real numbers alone, made safe: the way it was written is taken where operands are not moderate and finite.

A `checked` node reads the fast result, the operands to look at, and what the original computation is made of; the drop-in asks
`dvk_finite` and takes one or the other. The answer has to reach the host, so that this is for CPUs, where it is there.
"""

from __future__ import annotations

import torch


def dvk_finite(operands: list[torch.Tensor], factor: float) -> bool:
    """No operand holds NaN or infinity, and the product of their norms times `factor` is a number of single precision: no product of
    rows of theirs can be infinite."""
    size = factor
    for operand in operands:
        wide = torch.float64 if operand.dtype is torch.float64 else torch.float32
        size *= max(float(torch.linalg.vector_norm(operand, dtype=wide)), 1.0)
    return size < 3e38
