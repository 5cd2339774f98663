"""Has torch.compile write the kernels. Under --require-kernels they must be the candidate's own."""
# case: reference=gelu_affine device=any backend=cpp expect=refused require_kernels=yes

import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.compile
def fused(x, scale, shift):
    return F.gelu(x) * scale + shift


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return fused(x, self.scale, self.shift)
