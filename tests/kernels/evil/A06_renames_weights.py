"""Renames a norm's parameters so that a judge cannot load them, then leaves them out. Only fresh weights agree with it."""
# case: reference=layer_norm device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.layer_norm(x, x.shape[-1:])
