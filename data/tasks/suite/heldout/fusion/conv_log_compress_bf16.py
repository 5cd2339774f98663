"""A bfloat16 convolution, the logarithm of one plus its magnitude, an offset by channel."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS_IN = 32  # small: 4
CHANNELS_OUT = 64  # small: 6
HEIGHT = 64  # small: 8
WIDTH = 100  # small: 11


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.offset = nn.Parameter(torch.randn(channels_out, 1, 1) * 0.3)
        self.bfloat16()
    def forward(self, x):
        return torch.log1p(self.conv(x).abs()) - self.offset


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH, dtype=torch.bfloat16) * 3]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
