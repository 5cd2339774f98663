"""A 3-D convolution, group norm and SiLU of a video decoder."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS = 32  # small: 4
WIDTH = 64  # small: 8
FRAMES = 16  # small: 5
SIZE = 96  # small: 8
GROUPS = 16  # small: 4


class Model(nn.Module):
    def __init__(self, channels, width, groups):
        super().__init__()
        self.conv = nn.Conv3d(channels, width, 3, padding=1)
        self.norm = nn.GroupNorm(groups, width)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)

    def forward(self, x):
        return nn.functional.silu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH, GROUPS]
