"""Silu, mean, amin, sub."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 2  # small: 2
LENGTH = 196  # small: 5
HIDDEN_SIZE = 2049  # small: 5


class Model(nn.Module):
    def forward(self, x):
        y = F.silu(x).mean(1)
        a = torch.amin(y, dim=1, keepdim=True)
        return torch.sub(y, a)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, HIDDEN_SIZE)]


def get_init_inputs():
    return []
