"""Hardsigmoid."""

import torch
from torch import nn

BATCH = 7  # small: 2
CHANNELS = 96  # small: 16
FRAMES = 8  # small: 6
SIDE = 8  # small: 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Hardsigmoid()

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, FRAMES, SIDE, 1))]


def get_init_inputs():
    return []
