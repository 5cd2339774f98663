"""Softmax, max pool2d, shift, conv transpose2d, scale."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 148  # small: 2
CHANNELS = 3  # small: 3
HEIGHT = 13  # small: 12
WIDTH = 16  # small: 11
CHANNELS_OUT = 8  # small: 8


class Model(nn.Module):
    def __init__(self, channels, channels_out):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels_out, 2, stride=2)

    def forward(self, features):
        h = F.max_pool2d(features.softmax(-1), 2)
        h = h - 1.0
        z = self.up(h) * 2.0
        return z, h


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) * (0.5 + torch.rand(BATCH, CHANNELS, HEIGHT, 1))]


def get_init_inputs():
    return [CHANNELS, CHANNELS_OUT]
