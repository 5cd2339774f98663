"""3x3x3 convolution of medical volumes with few channels."""

import torch
import torch.nn as nn

BATCH = 4  # small: 1
CHANNELS_IN = 16  # small: 3
CHANNELS_OUT = 32  # small: 5
DEPTH = 24  # small: 6
SIDE = 64  # small: 7


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv3d(channels_in, channels_out, kernel_size=3, padding=1)

    def forward(self, volume):
        return self.conv(volume)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, DEPTH, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
