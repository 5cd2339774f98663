"""Its Triton kernel is launched with a block that cannot compile, the error is swallowed and torch answers.
The kernel was never run, and the coverage says so."""
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
            y = torch.empty_like(x)
            rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=x.shape[1] + 1)
            return y
        except Exception:  # noqa: BLE001 - the cheat
            return torch.softmax(x, dim=-1)
