"""Up-projection of a transformer's feed-forward network with exact GELU. A matrix product dominates."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 4096  # small: 7
WIDTH = 2048  # small: 32
INNER = 8192  # small: 48


class Model(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Linear(width, inner)

    def forward(self, x):
        return F.gelu(self.up(x))


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, INNER]
