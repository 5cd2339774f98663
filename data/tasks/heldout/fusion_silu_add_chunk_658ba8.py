"""Silu, add, chunk, silu, mul."""

import torch
from torch import nn

BATCH = 2  # small: 2
CHANNELS = 8  # small: 8
HEIGHT = 256  # small: 7
WIDTH = 64  # small: 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.activation = nn.SiLU()
        self.act = nn.SiLU()

    def forward(self, x):
        t = self.activation(x)
        tmp, mid = (x + t).chunk(2, dim=1)
        mid = self.act(mid)
        return tmp * mid


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) * (0.5 + torch.rand(BATCH, CHANNELS, HEIGHT, 1))]


def get_init_inputs():
    return []
