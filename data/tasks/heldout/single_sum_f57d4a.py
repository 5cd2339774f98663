"""Sum."""

import torch
from torch import nn

BATCH = 1  # small: 1
CHANNELS = 8  # small: 8
SIDE = 256  # small: 9


class Model(nn.Module):
    def forward(self, hidden_states):
        hidden_states = hidden_states.sum(dim=3)
        return hidden_states


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 2.0]


def get_init_inputs():
    return []
