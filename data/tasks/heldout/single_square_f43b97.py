"""Square."""

import torch
import torch.nn as nn

BATCH = 512  # small: 3
CHANNELS = 16  # small: 16
SIDE = 16  # small: 12


class Model(nn.Module):
    def forward(self, x):
        x = torch.square(x)
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))]


def get_init_inputs():
    return []
