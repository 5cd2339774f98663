"""A pre-activation residual step: batch norm with the batch's statistics, ReLU, a 3x3 convolution, the skip."""

import torch
import torch.nn as nn

BATCH = 56  # small: 3
CHANNELS = 80  # small: 4
SIZE = 160  # small: 9


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)
    def forward(self, x):
        return x + self.conv(torch.relu(self.norm(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE) * (0.5 + torch.rand(CHANNELS, 1, 1))]


def get_init_inputs():
    return [CHANNELS]
