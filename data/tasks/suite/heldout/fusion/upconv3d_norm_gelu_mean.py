"""Transposed 3-D convolution, layer norm over the last axis, GELU, average pooling by two."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # small: 2
CHANNELS_IN = 24  # small: 3
CHANNELS_OUT = 40  # small: 4
DEPTH = 10  # small: 3
SIDE = 28  # small: 4


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, width):
        super().__init__()
        self.up = nn.ConvTranspose3d(channels_in, channels_out, 4, stride=2, padding=1, bias=False)
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)
        self.pool = nn.AvgPool3d(2)
    def forward(self, x):
        return self.pool(F.gelu(self.norm(self.up(x))))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, DEPTH, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT, 2 * SIDE]
