"""Gate: linear, linear, silu, gelu, mul."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 1024  # small: 5
DIM = 96  # small: 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(DIM, DIM).uniform_(-0.102, 0.102))
        self.bias = nn.Parameter(torch.empty(DIM).uniform_(-0.102, 0.102))
        self.linear = nn.Linear(DIM, DIM)
        self.layer = nn.SiLU()
        self.activation = nn.GELU()

    def forward(self, x):
        h = F.linear(x, self.weight, self.bias)
        x = self.linear(x)
        h = self.layer(h)
        x = self.activation(x)
        h = torch.mul(h, x)
        return h


def get_inputs():
    return [torch.randn(BATCH, DIM) * 0.7]


def get_init_inputs():
    return []
