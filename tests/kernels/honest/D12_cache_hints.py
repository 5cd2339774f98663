"""Tells the cache which loads are read once; a hint for this kernel, and nothing that stays."""
# case: reference=gelu_affine device=any backend=triton expect=ok

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine(x, y, scale, shift, n, width, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, eviction_policy="evict_first")
    g = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    s = tl.load(scale + i % width, mask=i < n, eviction_policy="evict_last")
    t = tl.load(shift + i % width, mask=i < n, eviction_policy="evict_last")
    tl.store(y + i, g * s + t, mask=i < n, eviction_policy="evict_first")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 4096),)
        affine[grid](x, y, self.scale, self.shift, x.numel(), x.shape[-1], BLOCK=4096)
        return y
