"""A wide linear layer, group norm of its result, a gate."""

import torch
import torch.nn as nn

BATCH = 2048  # small: 4
WIDTH = 6144  # small: 32
OUT = 6144  # small: 24
GROUPS = 64  # small: 4


class Model(nn.Module):
    def __init__(self, width, out, groups):
        super().__init__()
        self.linear = nn.Linear(width, out)
        self.norm = nn.GroupNorm(groups, out)
        self.gate = nn.Parameter(torch.randn(out))
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)

    def forward(self, x):
        x = self.norm(self.linear(x))
        return x * torch.sigmoid(x * self.gate)


def get_inputs():
    return [torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH, OUT, GROUPS]
