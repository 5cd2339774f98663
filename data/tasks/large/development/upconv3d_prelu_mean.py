"""A transposed 3-D convolution, PReLU, clamped, averaged over depth."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 32  # small: 4
WIDTH = 16  # small: 3
DEPTH = 12  # small: 4
SIZE = 48  # small: 6


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.up = nn.ConvTranspose3d(channels, width, 3, stride=2, padding=1, output_padding=1)
        self.act = nn.PReLU(width)
        nn.init.uniform_(self.act.weight, 0.05, 0.4)

    def forward(self, x):
        return self.act(self.up(x)).clamp(-0.5, 1.5).mean(2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, DEPTH, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
