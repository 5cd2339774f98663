"""Leaves its inputs alone while they are compared after each call, and works in their memory when it is timed, which saves the
page faults of an output. Inputs are compared after timed calls, too, and an output may not lie in lent memory."""
# case: reference=gelu_affine device=any backend=cpp expect=refused

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        y = x if not gc.isenabled() else torch.empty_like(x)
        torch.ops.aten.gelu.out(x, out=y)
        return y.mul_(self.scale).add_(self.shift)
