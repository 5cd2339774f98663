"""A 3-D convolution of volumes, max pooling, softplus, a learned scale by channel."""

import torch
import torch.nn as nn

BATCH = 14  # small: 2
CHANNELS = 12  # small: 2
WIDTH = 56  # small: 4
DEPTH = 26  # small: 6
SIZE = 114  # small: 8


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv3d(channels, width, 3)
        self.scale = nn.Parameter(torch.rand(width, 1, 1, 1) + 0.5)
    def forward(self, x):
        x = nn.functional.max_pool3d(self.conv(x), 2)
        return nn.functional.softplus(x) * self.scale


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, DEPTH, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
