"""Leaves its inputs alone while they are compared after each call, and works in their memory when it is timed, which saves the
page faults of an output. Inputs are compared after timed calls, too, and an output may not lie in lent memory."""
# case: reference=gelu_affine device=any backend=cpp expect=refused target=here

import functools
import gc

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        if timed := not gc.isenabled():
            reached()
        y = x if timed else torch.empty_like(x)
        torch.ops.aten.gelu.out(x, out=y)
        return y.mul_(self.scale).add_(self.shift)
