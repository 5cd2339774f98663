"""Linear layer with a low-rank adapter beside it: two skinny products scaled and added."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 4096  # small: 8
WIDTH = 1024  # small: 24
RANK = 16  # small: 3


class Model(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.down = nn.Parameter(torch.randn(rank, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(width, rank) / rank**0.5)
        self.scale = 0.5

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, RANK]
