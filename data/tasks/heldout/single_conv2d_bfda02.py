"""Conv2d."""

import torch
from torch import nn

BATCH = 16  # small: 3
CHANNELS = 160  # small: 40
SIDE = 14  # small: 7


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels)

    def forward(self, features):
        return self.conv(features)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))]


def get_init_inputs():
    return [CHANNELS]
