"""Gate: layer norm, linear, linear, sigmoid, silu and 3 more."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 1  # small: 1
SEQ = 31  # small: 5
WIDTH = 2048  # small: 16


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.weight = nn.Parameter(torch.randn(width, width) * 0.011)
        self.bias = nn.Parameter(torch.randn(width) * 0.025)
        self.linear = nn.Linear(width, width, bias=False)
        self.layer = nn.SiLU()

    def forward(self, x):
        t = self.norm(x)
        tmp = F.linear(t, self.weight, self.bias)
        mid = self.linear(t)
        part = F.sigmoid(tmp)
        t2 = self.layer(mid)
        t3 = (part * t2) * 2.0
        t4 = x.add(t3)
        return t4


def get_inputs():
    return [torch.randn(BATCH, SEQ, WIDTH) * (0.5 + torch.rand(BATCH, SEQ, 1))]


def get_init_inputs():
    return [WIDTH]
