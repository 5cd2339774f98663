"""A strided convolution, batch norm with the batch's statistics, leaky ReLU."""

import torch
import torch.nn as nn

BATCH = 64  # small: 3
CHANNELS = 16  # small: 3
WIDTH = 64  # small: 4
SIZE = 256  # small: 11


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 5, stride=2, padding=2, bias=False)
        self.norm = nn.BatchNorm2d(width)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)

    def forward(self, x):
        return nn.functional.leaky_relu(self.norm(self.conv(x)), 0.1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
