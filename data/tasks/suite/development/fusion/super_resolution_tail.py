"""Tail of a super-resolution network: convolution, sub-pixel shuffle, PReLU."""

import torch
import torch.nn as nn

BATCH = 4  # small: 2
CHANNELS = 64  # small: 4
SIDE = 112  # small: 7
FACTOR = 2  # small: 2


class Model(nn.Module):
    def __init__(self, channels, factor):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels * factor**2, kernel_size=3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)
        self.act = nn.PReLU(channels)
        nn.init.uniform_(self.act.weight, 0.1, 0.4)

    def forward(self, x):
        return self.act(self.shuffle(self.conv(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FACTOR]
