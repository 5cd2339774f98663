"""Conv2d, chunk, hardsigmoid, mul."""

import torch
from torch import nn

BATCH = 24  # small: 3
CHANNELS = 160  # small: 24
SIDE = 14  # small: 9
OUT_CHANNELS = 24  # small: 24


class Model(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 3, padding=1)
        self.activation = nn.Hardsigmoid()

    def forward(self, hidden_states):
        hidden_states = self.conv(hidden_states)
        hidden_states, y = hidden_states.chunk(2, dim=1)
        hidden_states = self.activation(hidden_states)
        return y * hidden_states


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))]


def get_init_inputs():
    return [CHANNELS, OUT_CHANNELS]
