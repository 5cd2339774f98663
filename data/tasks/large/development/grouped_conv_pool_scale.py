"""A grouped convolution, max pooling, tanh, a learned scale."""

import torch
import torch.nn as nn

BATCH = 64  # small: 2
CHANNELS = 64  # small: 8
WIDTH = 128  # small: 16
SIZE = 112  # small: 10
GROUPS = 4


class Model(nn.Module):
    def __init__(self, channels, width, groups):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1, groups=groups)
        self.scale = nn.Parameter(torch.rand(width, 1, 1) + 0.5)

    def forward(self, x):
        return torch.tanh(nn.functional.max_pool2d(self.conv(x), 2)) * self.scale


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH, GROUPS]
