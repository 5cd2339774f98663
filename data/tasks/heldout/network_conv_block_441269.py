"""Conv block: conv2d, relu, conv2d, group norm, mish and 1 more."""

import torch
from torch import nn

BATCH = 48  # small: 2
CHANNELS = 8  # small: 8
SIDE = 13  # small: 12
FILTERS = 64  # small: 40


class Model(nn.Module):
    def __init__(self, channels, filters, temperature):
        super().__init__()
        self.temperature = temperature
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels)
        self.convolution = nn.Conv2d(channels, filters, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(1, filters)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.activation = nn.Mish()

    def forward(self, x):
        x = self.conv(x)
        x = torch.relu(x)
        x = self.convolution(x)
        x = self.norm(x)
        x = self.activation(x)
        return x.add(self.temperature)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 0.7]


def get_init_inputs():
    return [CHANNELS, FILTERS, 0.1]
