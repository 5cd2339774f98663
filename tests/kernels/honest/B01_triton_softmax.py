"""A Triton softmax in float32 throughout."""
# case: reference=attention_weights device=any backend=triton expect=ok

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows(x, y, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * width + i, mask=i < width, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * width + i, e / tl.sum(e, 0), mask=i < width)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        width = x.shape[-1]
        rows[(x.numel() // width,)](x, y, width, BLOCK=triton.next_power_of_2(width))
        return y
