"""Conv2d."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
CHANNELS = 128  # small: 40
SIDE = 8  # small: 8
OUT_CHANNELS = 24  # small: 24


class Model(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, kernel_size=3, padding=2, dilation=2, bias=False)

    def forward(self, hidden_states):
        return self.conv(hidden_states)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))]


def get_init_inputs():
    return [CHANNELS, OUT_CHANNELS]
