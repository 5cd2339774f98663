"""A tensor of four dimensions times a matrix along its last one."""

import torch
import torch.nn as nn

BATCH = 6  # small: 2
HEIGHT = 44  # small: 3
WIDTH = 132  # small: 5
CHANNELS = 288  # small: 11
OUT = 608  # small: 13


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, out) / channels**0.5)
    def forward(self, x):
        return torch.einsum("bhwc,cd->bhwd", x, self.weight)


def get_inputs():
    return [torch.randn(BATCH, HEIGHT, WIDTH, CHANNELS)]


def get_init_inputs():
    return [CHANNELS, OUT]
