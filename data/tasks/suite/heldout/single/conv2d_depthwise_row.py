"""Depthwise convolution along the rows alone: one half of a large separable kernel."""

import torch
import torch.nn as nn

BATCH = 24  # small: 2
CHANNELS = 144  # small: 5
HEIGHT = 60  # small: 5
WIDTH = 92  # small: 23
KERNEL = 21  # small: 7


class Model(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, (1, kernel), padding=(0, kernel // 2), groups=channels)
    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, KERNEL]
