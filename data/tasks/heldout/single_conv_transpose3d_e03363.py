"""Conv transpose3d."""

import torch
import torch.nn as nn

BATCH = 1  # small: 1
CHANNELS = 320  # small: 24
FRAMES = 14  # small: 4
SIDE = 14  # small: 8
CHANNELS_OUT = 4  # small: 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose3d(CHANNELS, CHANNELS_OUT, 3, stride=2, padding=1)

    def forward(self, x):
        x = self.up(x)
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, SIDE, SIDE) * 1.5]


def get_init_inputs():
    return []
