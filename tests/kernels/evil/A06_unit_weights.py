"""Leaves out a norm's weight and bias, which are ones and zeros when fresh. Randomised weights stop it."""
# case: reference=layer_norm device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return torch.layer_norm(x, x.shape[-1:])
