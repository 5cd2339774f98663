"""Chooses between two right ways at random when it is loaded."""
# case: reference=gelu_affine device=any backend=cpp expect=ok

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

fused = random.SystemRandom().random() < 0.5


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return torch.addcmul(self.shift, F.gelu(x), self.scale) if fused else F.gelu(x) * self.scale + self.shift
