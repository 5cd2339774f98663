"""A Triton layer norm in float32 throughout, with weight and bias."""
# case: reference=layer_norm device=any backend=triton expect=ok

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows(x, weight, bias, y, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * width + i, mask=i < width, other=0.0)
    centred = tl.where(i < width, v - tl.sum(v, 0) / width, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    w = tl.load(weight + i, mask=i < width, other=0.0)
    b = tl.load(bias + i, mask=i < width, other=0.0)
    tl.store(y + row * width + i, centred * scale * w + b, mask=i < width)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        width = x.shape[-1]
        n = self.norm
        rows[(x.numel() // width,)](x, n.weight, n.bias, y, width, n.eps, BLOCK=triton.next_power_of_2(width))
        return y
