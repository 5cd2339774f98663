import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sums(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(y + row, tl.sum(v * 2, 0))


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0], 1)
        sums[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y.expand(-1, x.shape[1])
