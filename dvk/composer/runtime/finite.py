"""What is equal in real numbers alone, made safe: the way it was written is taken where operands are not moderate and finite.

A `checked` node reads the fast result, the operands to look at, and what the original computation is made of; the drop-in asks
`dvk_finite` and takes one or the other. The answer has to reach the host, so that this is for CPUs, where it is there.
"""

from __future__ import annotations

import torch


def dvk_finite(operands: list[torch.Tensor], factor: float) -> bool:
    """No operand holds NaN or infinity, and no product of rows of theirs, times `factor`, can be infinite: the product of their norms is a
    number of single precision, or of rows of float16 one of that type, in which PyTorch would write it to memory."""
    size, limit = factor, 3e38
    for operand in operands:
        wide = torch.float64 if operand.dtype is torch.float64 else torch.float32
        if operand.dtype is torch.float16 and operand.numel():
            limit = 65504.0
            norm = torch.linalg.vector_norm(operand, dim=-1, dtype=wide).amax()
        else:
            norm = torch.linalg.vector_norm(operand, dtype=wide)
        size *= max(float(norm), 1.0)
    return size < limit
