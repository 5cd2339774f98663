"""3-D convolution whose kernel has three different sides."""

import torch
import torch.nn as nn

BATCH = 2  # small: 1
CHANNELS_IN = 8  # small: 2
CHANNELS_OUT = 24  # small: 3
DEPTH = 18  # small: 5
HEIGHT = 72  # small: 8
WIDTH = 88  # small: 9


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv3d(channels_in, channels_out, kernel_size=(3, 5, 7))
    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
