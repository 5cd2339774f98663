"""A fixed number of programs, each of which takes row after row and ends when there are none."""
# case: reference=rows_softmax device=any backend=triton expect=ok

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows(x, y, num, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), num, PROGRAMS):
        v = tl.load(x + row * n + i, mask=i < n, other=float("-inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(y + row * n + i, e / tl.sum(e, 0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        programs = min(x.shape[0], 132)
        rows[(programs,)](x, y, x.shape[0], x.shape[1], PROGRAMS=programs, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
