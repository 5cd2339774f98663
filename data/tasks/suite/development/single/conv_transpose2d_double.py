"""Transposed convolution that doubles the resolution: kernel of four, stride of two."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS_IN = 256  # small: 6
CHANNELS_OUT = 128  # small: 4
SIDE = 32  # small: 5


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels_in, channels_out, kernel_size=4, stride=2, padding=1)

    def forward(self, x):
        return self.up(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
