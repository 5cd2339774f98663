"""A wide linear layer, batch norm over sixteen thousand rows in training mode, tanh, a bias."""

import torch
import torch.nn as nn

BATCH = 16384  # small: 7
WIDTH = 2048  # small: 20
OUT = 5120  # small: 24


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out, bias=False)
        self.norm = nn.BatchNorm1d(out)
        self.bias = nn.Parameter(torch.randn(out) * 0.5)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)
    def forward(self, x):
        return torch.tanh(self.norm(self.linear(x))) + self.bias


def get_inputs():
    return [torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH, OUT]
