"""Launches eight times, each a part of the rows, on one stream."""
# case: reference=rows_softmax device=any backend=triton expect=ok

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows(x, y, first, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = first + tl.program_id(0)
    v = tl.load(x + row * n + i, mask=i < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * n + i, e / tl.sum(e, 0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        bounds = [x.shape[0] * part // 8 for part in range(9)]
        for first, last in zip(bounds, bounds[1:]):
            if last > first:
                rows[(last - first,)](x, y, first, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
