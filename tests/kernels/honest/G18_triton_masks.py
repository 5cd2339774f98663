"""Masks every load and store, at odd widths too."""
# case: reference=row_energy device=any backend=triton expect=ok

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def energy(x, y, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * 8 + tl.arange(0, 8)
    i = tl.arange(0, BLOCK)
    mask = (row < rows)[:, None] & (i < n)[None, :]
    v = tl.load(x + row[:, None] * n + i[None, :], mask=mask, other=0.0)
    tl.store(y + row, tl.sum(v * v, 1), mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        energy[(triton.cdiv(x.shape[0], 8),)](x, y, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
