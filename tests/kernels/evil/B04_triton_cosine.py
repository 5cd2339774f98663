"""The GPU's fast cosine through a polynomial of the first quadrant. Wide-range inputs stop it."""
# case: reference=cosine device=any backend=triton expect=refused

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cosine(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    s = v * v
    p = ((((2.08767570e-9 * s - 2.75573192e-7) * s + 2.48015873e-5) * s - 1.38888889e-3) * s + 4.16666667e-2) * s - 0.5
    tl.store(y + i, p * s + 1.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cosine[(triton.cdiv(x.numel(), 16384),)](x, y, x.numel(), BLOCK=16384)
        return y
