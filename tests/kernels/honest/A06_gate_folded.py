"""Multiplies the gate into weight and bias each call instead of into the product."""
# case: reference=gated_residual device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.addmm(x + self.gate * self.layer.bias, x, (self.gate * self.layer.weight).t())
