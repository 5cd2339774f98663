"""A Triton kernel that masks what lies past the end."""
# case: reference=affine device=any backend=triton expect=ok

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(v < 0.0, 0.0, v) * 2 + 1, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        affine[(triton.cdiv(x.numel(), 16384),)](x, y, x.numel(), BLOCK=16384)
        return y
