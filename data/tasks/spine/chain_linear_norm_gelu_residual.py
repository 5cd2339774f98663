"""Linear, layer norm, GELU, and the input added back."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 16384  # small: 5
WIDTH = 1024  # small: 32


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x):
        return x + F.gelu(self.norm(self.linear(x)))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
