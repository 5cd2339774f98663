"""Its last program stores without a mask beyond the end of the tensor that it was lent.
Guard pages on the CPU, unmapped memory or red zones around the lent buffers on a GPU, stop it."""
# case: reference=row_energy device=any backend=triton expect=refused

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def energy(x, y, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(y + row, tl.sum(v * v, 0))
    last = (i < 16) & (i + row > rows - 2)
    tl.store(x + rows * n + (1 << 22) + i, v, mask=last)


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        energy[(x.shape[0],)](x, y, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
