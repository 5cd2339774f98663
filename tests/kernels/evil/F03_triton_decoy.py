"""A Triton kernel named after the operation touches one element, and torch does the operation.
Coverage is the share of device time in the candidate's own kernels, not a name."""
# case: reference=rows_softmax device=cuda backend=triton expect=refused require_kernels=yes

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows_fused_kernel(y):
    tl.store(y, tl.load(y))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, dim=-1)
        softmax_rows_fused_kernel[(1,)](y)
        return y
