"""Transposed convolution, another bias, group norm, hard tanh with uneven bounds."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
CHANNELS_IN = 72  # small: 4
CHANNELS_OUT = 48  # small: 6
SIDE = 48  # small: 6
GROUPS = 6  # small: 2


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, groups):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels_in, channels_out, 4, stride=2, padding=1, bias=False)
        self.bias = nn.Parameter(torch.randn(channels_out, 1, 1))
        self.norm = nn.GroupNorm(groups, channels_out)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)
    def forward(self, x):
        return F.hardtanh(self.norm(self.up(x) + self.bias), -1.5, 2.0)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE) * (0.3 + torch.rand(BATCH, 1, 1, 1))]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT, GROUPS]
