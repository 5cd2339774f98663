"""Guard results that are equal only in real arithmetic: the original computation runs if operands are not moderate and finite.

A `checked` node reads the fast result, the operands to check, and the operands of the original computation; the drop-in calls `dvk_finite`
and takes one or the other. The host needs the answer, so this is for CPUs, where no synchronisation is needed.
"""

from __future__ import annotations

import torch


def dvk_finite(operands: list[torch.Tensor], factor: float) -> bool:
    """No operand holds NaN or infinity, and no product of their rows, times `factor`, can be infinite.

    The product of the rows' norms must be finite in single precision, or in float16 for rows of that type, in which PyTorch would store it.
    """
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
