"""A tensor subclass that says float32 over bytes of 16-bit floats. Reading the bytes it points at stops it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class Claims(torch.Tensor):
    dtype = property(lambda self: torch.float32)
    itemsize = property(lambda self: 4)


class ModelNew(nn.Module):
    def forward(self, x):
        return (torch.relu(x.half()) * 2 + 1).as_subclass(Claims)
