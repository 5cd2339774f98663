import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_relu(x, bias, y, n, width, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask) + tl.load(bias + i % width, mask=mask)
    tl.store(y + i, tl.maximum(v, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        bias_relu[(triton.cdiv(n, 1024),)](x, self.bias, y, n, self.bias.numel(), BLOCK=1024)
        return y
