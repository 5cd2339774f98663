"""Convolution with a kernel three high and nine wide over spectrograms, which are not square either."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS_IN = 32  # small: 3
CHANNELS_OUT = 56  # small: 4
MELS = 80  # small: 8
FRAMES = 250  # small: 21


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=(3, 9), padding=(1, 4))
    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, MELS, FRAMES)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
