"""A depthwise and a pointwise convolution, hard swish between and after them."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
CHANNELS = 128  # small: 6
WIDTH = 256  # small: 8
SIZE = 112  # small: 9


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, width, 1)

    def forward(self, x):
        x = nn.functional.hardswish(self.depthwise(x))
        return nn.functional.hardswish(self.pointwise(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
