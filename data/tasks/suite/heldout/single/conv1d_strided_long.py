"""Strided convolution of a long recording with a wide kernel."""

import torch
import torch.nn as nn

BATCH = 12  # small: 2
CHANNELS_IN = 48  # small: 3
CHANNELS_OUT = 120  # small: 5
SAMPLES = 16000  # small: 90


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, kernel_size=15, stride=4, padding=7)
    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SAMPLES)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
