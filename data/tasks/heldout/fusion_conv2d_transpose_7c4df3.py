"""Conv2d, transpose."""

import torch
from torch import nn

BATCH = 32  # small: 3
CHANNELS = 16  # small: 16
SIDE = 27  # small: 8
CHANNELS_OUT = 48  # small: 40


class Model(nn.Module):
    def __init__(self, channels, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels_out, kernel_size=5, stride=2, padding=2)

    def forward(self, hidden_states):
        hidden_states = self.conv(hidden_states)
        return hidden_states.permute(0, 2, 1, 3)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 0.5]


def get_init_inputs():
    return [CHANNELS, CHANNELS_OUT]
