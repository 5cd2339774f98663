"""Pre-norm MLP block of a transformer: norm, two linear layers with GELU between, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 8192  # cpu: 512  # small: 6
WIDTH = 1024  # cpu: 256  # small: 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return []
