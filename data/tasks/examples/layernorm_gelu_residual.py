"""Pre-norm residual branch of a small vision transformer: layer norm, GELU, layer scale, add to the stream."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16  # small: 3
TOKENS = 197  # small: 5
WIDTH = 768  # small: 24


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.layer_scale = nn.Parameter(torch.empty(width).uniform_(0.05, 0.5))

    def forward(self, x):
        return x + self.layer_scale * F.gelu(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
