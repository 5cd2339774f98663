"""Transposed 3-D convolution that doubles a volume's sides."""

import torch
import torch.nn as nn

BATCH = 4  # small: 1
CHANNELS_IN = 40  # small: 4
CHANNELS_OUT = 20  # small: 3
DEPTH = 12  # small: 3
SIDE = 30  # small: 5


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.up = nn.ConvTranspose3d(channels_in, channels_out, 3, stride=2, padding=1, output_padding=1)
    def forward(self, x):
        return self.up(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, DEPTH, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
