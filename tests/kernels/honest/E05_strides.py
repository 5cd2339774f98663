"""A Triton kernel that walks pointers by its arguments' strides, within their bounds."""
# case: reference=mean_rows device=cuda backend=triton expect=ok

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def means(x, y, width, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    pointer = x + row.to(tl.int64) * stride
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        i = start + tl.arange(0, BLOCK)
        sums += tl.load(pointer + i, mask=i < width, other=0.0)
    tl.store(y + row, tl.sum(sums, 0) / width)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        means[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=4096)
        return y
