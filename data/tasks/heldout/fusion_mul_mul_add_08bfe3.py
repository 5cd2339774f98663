"""Mul, mul, add, normalize."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 6  # small: 2
CHANNELS = 16  # small: 16
HEIGHT = 96  # small: 9
WIDTH = 96  # small: 8


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, 1).uniform_(0.5, 1.5))
        self.register_buffer("bias", torch.rand(channels, 1, 1) * 0.6 - 0.3)

    def forward(self, features, scale):
        return F.normalize((features.mul(scale) * self.weight).add(self.bias), dim=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) * (0.5 + torch.rand(BATCH, CHANNELS, HEIGHT, 1)), torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
