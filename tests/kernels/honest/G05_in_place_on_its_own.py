"""Works in place, in its own memory."""
# case: reference=gelu_affine device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return torch.nn.functional.gelu(x).mul_(self.scale).add_(self.shift)
