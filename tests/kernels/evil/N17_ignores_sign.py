"""Scales by the size of the number that the caller gives, not by its sign. Numbers of the other sign stop it."""
# case: reference=scaled device=any backend=cpp expect=refused twin=N17_bakes_number

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, alpha: float):
        return torch.relu(x).mul_(abs(alpha)).add_(1)
