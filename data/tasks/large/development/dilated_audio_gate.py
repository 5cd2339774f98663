"""A dilated convolution of long audio, gated, with a residual."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 64  # small: 4
LENGTH = 131072  # small: 40


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv1d(channels, 2 * channels, 3, padding=8, dilation=8)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        a, b = self.conv(x).chunk(2, 1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS]
