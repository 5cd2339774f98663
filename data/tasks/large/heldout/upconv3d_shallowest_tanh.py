"""A transposed 3-D convolution, the smallest value along the depth, a bias by channel, tanh."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 28  # small: 4
WIDTH = 20  # small: 3
DEPTH = 18  # small: 4
SIZE = 62  # small: 5


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.up = nn.ConvTranspose3d(channels, width, 3, stride=2, padding=1, output_padding=1)
        self.bias = nn.Parameter(torch.randn(width, 1, 1))
    def forward(self, x):
        return torch.tanh(self.up(x).amin(dim=2) + self.bias)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, DEPTH, SIZE, SIZE) * 2]


def get_init_inputs():
    return [CHANNELS, WIDTH]
