"""Separable: conv2d, group norm, conv2d, tanh, shift and 1 more."""

import torch
import torch.nn as nn

BATCH = 6  # small: 2
CHANNELS = 64  # small: 40
SIDE = 27  # small: 12


class Model(nn.Module):
    def __init__(self, channels, temperature):
        super().__init__()
        self.temperature = temperature
        self.conv = nn.Conv2d(channels, channels, kernel_size=5, padding=2, groups=channels)
        self.norm = nn.GroupNorm(2, channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.convolution = nn.Conv2d(channels, channels, kernel_size=1)

    def forward(self, features):
        t = self.conv(features)
        t = self.norm(t)
        t = self.convolution(t)
        tmp = t.tanh() + self.temperature
        tmp = tmp.add(features)
        return tmp


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))]


def get_init_inputs():
    return [CHANNELS, 1.0]
