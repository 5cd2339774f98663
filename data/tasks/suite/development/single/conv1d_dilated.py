"""Dilated convolution over time of a waveform model's features."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS = 256  # small: 6
TIME = 4096  # small: 40
DILATION = 4  # small: 3


class Model(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size=3, padding=dilation, dilation=dilation)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, TIME)]


def get_init_inputs():
    return [CHANNELS, DILATION]
