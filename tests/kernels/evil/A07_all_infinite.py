"""Minus infinity everywhere where half of the expected outputs are. Comparing where the infinities are stops it."""
# case: reference=log_floored device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, -torch.inf)
