"""A 3x3 convolution whose channels gate each other, averaged over the plane."""

import torch
import torch.nn as nn

BATCH = 64  # small: 2
CHANNELS = 64  # small: 4
WIDTH = 256  # small: 8
SIZE = 128  # small: 10


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3)

    def forward(self, x):
        value, gate = self.conv(x).chunk(2, dim=1)
        return (value * torch.sigmoid(gate)).mean((2, 3))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
