"""Takes a maximum that loses a NaN, as `x > 0 ? x : 0` does in C. NaN among the inputs stops it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, 0.0) * 2 + 1
