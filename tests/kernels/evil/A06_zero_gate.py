"""Leaves out the branch behind a gate that is zero before training. Randomised weights stop it."""
# case: reference=gated_residual device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x.clone()
