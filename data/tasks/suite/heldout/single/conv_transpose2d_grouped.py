"""Transposed convolution in four groups with stride three, dilation and output padding."""

import torch
import torch.nn as nn

BATCH = 12  # small: 2
CHANNELS = 64  # small: 8
SIDE = 44  # small: 5
GROUPS = 4  # small: 2


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels, 3, stride=3, padding=2, output_padding=1, dilation=2, groups=groups)
    def forward(self, x):
        return self.up(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
