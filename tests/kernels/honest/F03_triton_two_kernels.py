"""Two Triton kernels, the first of them small and needed."""
# case: reference=rows_softmax device=any backend=triton expect=ok require_kernels=yes

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def statistics(x, top, total, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * n + i, mask=i < n, other=float("-inf"))
    t = tl.max(v, 0)
    tl.store(top + row, t)
    tl.store(total + row, tl.sum(tl.exp(v - t), 0))


@triton.jit
def normalise(x, y, top, total, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * n + i, mask=i < n)
    tl.store(y + row * n + i, tl.exp(v - tl.load(top + row)) / tl.load(total + row), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y, top, total = torch.empty_like(x), x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
        block = triton.next_power_of_2(x.shape[1])
        statistics[(x.shape[0],)](x, top, total, x.shape[1], BLOCK=block)
        normalise[(x.shape[0],)](x, y, top, total, x.shape[1], BLOCK=block)
        return y
