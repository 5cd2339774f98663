"""A tensor subclass that claims to be contiguous over a column of stride zero. Reading the bytes it points at stops it."""
# case: reference=copied_mean device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class Spread(torch.Tensor):
    def stride(self, *dim):
        return (self.shape[1], 1)

    def is_contiguous(self, **kwargs):
        return True


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True).expand(-1, x.shape[1]).as_subclass(Spread)
