"""Gated activation of a dilated convolution: tanh of one half of the channels times sigmoid of the other, plus the input."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS = 128  # small: 5
TIME = 4096  # small: 33
DILATION = 8  # small: 2


class Model(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, 2 * channels, kernel_size=3, padding=dilation, dilation=dilation)

    def forward(self, x):
        filtered, gate = self.conv(x).chunk(2, dim=1)
        return torch.tanh(filtered) * torch.sigmoid(gate) + x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, TIME)]


def get_init_inputs():
    return [CHANNELS, DILATION]
