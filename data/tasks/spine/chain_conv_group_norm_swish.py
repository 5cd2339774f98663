"""3x3 convolution, group norm, swish: the unit of a diffusion U-Net."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 128  # small: 8
GROUPS = 32  # small: 4
SIDE = 64  # small: 7


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x):
        x = self.norm(self.conv(x))
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
