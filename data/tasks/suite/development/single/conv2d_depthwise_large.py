"""Depthwise convolution with a 7x7 kernel."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
CHANNELS = 192  # small: 5
SIDE = 56  # small: 11


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
