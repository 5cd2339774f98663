"""A convolution, Mish, a 3x3 max pooling with stride two, tanh and a scale by channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16  # small: 2
CHANNELS_IN = 24  # small: 3
CHANNELS_OUT = 72  # small: 4
SIDE = 96  # small: 11


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(channels_out, 1, 1) + 0.5)
    def forward(self, x):
        x = F.max_pool2d(F.mish(self.conv(x)), 3, stride=2, padding=1)
        return torch.tanh(x) * self.scale


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE) * 2]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
