"""Batch norm, abs."""

import torch
from torch import nn

BATCH = 64  # small: 2
CHANNELS = 80  # small: 16
SIDE = 13  # small: 12


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.to(torch.bfloat16)
        self.eval()

    def forward(self, x):
        x = self.norm(x)
        return abs(x)


def get_inputs():
    return [(torch.randn(BATCH, CHANNELS, SIDE, SIDE) - 0.5).bfloat16()]


def get_init_inputs():
    return [CHANNELS]
