"""A 7x7 depthwise convolution in bfloat16, GELU, a 1x1 convolution."""

import torch
import torch.nn as nn

BATCH = 64  # small: 2
CHANNELS = 240  # small: 6
WIDTH = 160  # small: 5
SIZE = 104  # small: 11


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.pointwise = nn.Conv2d(channels, width, 1)
        self.bfloat16()
    def forward(self, x):
        return self.pointwise(nn.functional.gelu(self.depthwise(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return [CHANNELS, WIDTH]
