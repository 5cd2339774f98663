"""Addcmul."""

import torch
from torch import nn

BATCH = 4  # small: 3
CHANNELS = 64  # small: 16
HEIGHT = 24  # small: 9
WIDTH = 24  # small: 11


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(CHANNELS, 1, 1).uniform_(-0.3, 0.3))
        self.register_buffer("weight", torch.rand(CHANNELS, 1, 1) * 1.0 + 0.5)

    def forward(self, x):
        x = torch.addcmul(self.bias, x, self.weight)
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
