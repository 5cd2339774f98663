"""Diffusion unit in its order of use: group norm, SiLU, 3x3 convolution, time embedding added."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
CHANNELS = 128  # small: 6
SIDE = 64  # small: 9
GROUPS = 32  # small: 3


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1)

    def forward(self, x, time):
        return self.conv(F.silu(self.norm(x))) + time[:, :, None, None]


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE), torch.randn(BATCH, CHANNELS)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
