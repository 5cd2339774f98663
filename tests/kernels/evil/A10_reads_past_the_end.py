"""Adds what lies past the end of its input, which a fresh segment holds as zeros. Unmapped or poisoned neighbours stop it."""
# case: reference=affine device=cuda backend=triton expect=refused

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    beyond = tl.load(x + n + i)
    tl.store(y + i, tl.maximum(v + beyond, 0.0) * 2 + 1, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        affine[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
