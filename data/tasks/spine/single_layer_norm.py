"""Layer norm with gain and bias over long rows."""

import torch
import torch.nn as nn

TOKENS = 8192  # small: 6
WIDTH = 4096  # small: 56


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH) * 2 + 0.5]


def get_init_inputs():
    return [WIDTH]
