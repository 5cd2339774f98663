"""Clamps to large numbers what is infinite. Infinities among the inputs stop it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).clamp(max=1e30) * 2 + 1
