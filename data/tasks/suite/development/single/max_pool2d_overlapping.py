"""Overlapping 3x3 max pooling with stride two, after the first convolution of a vision backbone."""

import torch
import torch.nn as nn

BATCH = 64  # small: 2
CHANNELS = 64  # small: 3
SIDE = 112  # small: 14


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
