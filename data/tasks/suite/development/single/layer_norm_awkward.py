"""Layer norm over rows of a prime length, which no vector width divides."""

import torch
import torch.nn as nn

ROWS = 24576  # small: 17
WIDTH = 1531  # small: 43


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(ROWS, WIDTH) * 2 + 0.5]


def get_init_inputs():
    return [WIDTH]
