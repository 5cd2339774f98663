"""Takes a maximum that keeps a NaN: what is not below zero stays."""
# case: reference=affine device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x < 0, 0.0, x) * 2 + 1
