"""Mul, divide."""

import torch
from torch import nn

BATCH = 6  # small: 3
CHANNELS = 8  # small: 8
SIDE = 32  # small: 7


class Model(nn.Module):
    def __init__(self, channels, alpha):
        super().__init__()
        self.alpha = alpha
        self.register_buffer("weight", torch.empty(channels, 1, 1).uniform_(0.5, 1.5))

    def forward(self, x):
        x = torch.mul(x, self.weight)
        return x / self.alpha


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, 3.5]
