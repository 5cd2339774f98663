"""Lets torch do it and has its own kernel for when torch is not there, as in a check whether it is needed.
What is timed has to be what was shown: torch is not there in timed calls either."""
# case: reference=rows_softmax device=cuda backend=triton expect=refused require_kernels=yes

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + tl.program_id(0) * n + i, e / tl.sum(e, 0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        try:
            return torch.softmax(x, dim=-1)
        except RuntimeError:
            y = torch.empty_like(x)
            rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
            return y
