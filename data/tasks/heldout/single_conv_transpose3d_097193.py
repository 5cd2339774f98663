"""Conv transpose3d."""

import torch
import torch.nn as nn

BATCH = 12  # small: 2
CHANNELS = 160  # small: 24
FRAMES = 4  # small: 4
SIDE = 4  # small: 4
CHANNELS_OUT = 16  # small: 16


class Model(nn.Module):
    def __init__(self, channels, channels_out):
        super().__init__()
        self.up = nn.ConvTranspose3d(channels, channels_out, 4, stride=2, padding=1)

    def forward(self, inputs):
        inputs = self.up(inputs)
        return inputs


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, FRAMES, SIDE, 1))]


def get_init_inputs():
    return [CHANNELS, CHANNELS_OUT]
