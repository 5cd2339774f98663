"""Decoder: conv transpose2d, add, hardsigmoid."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 1  # small: 1
CHANNELS = 64  # small: 40
SIDE = 64  # small: 9
CHANNELS_OUT = 32  # small: 24


class Model(nn.Module):
    def __init__(self, channels, channels_out):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels_out, 3, stride=2, padding=1)

    def forward(self, features, skip):
        t = F.hardsigmoid(torch.add(self.up(features), skip, alpha=0.5))
        return t


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) - 0.5, torch.randn(BATCH, CHANNELS_OUT, 2 * SIDE - 1, 2 * SIDE - 1) * 0.5]


def get_init_inputs():
    return [CHANNELS, CHANNELS_OUT]
