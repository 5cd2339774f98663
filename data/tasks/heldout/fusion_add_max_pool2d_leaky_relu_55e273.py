"""Add, max pool2d, leaky relu."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 256  # small: 2
CHANNELS = 128  # small: 24
SIDE = 7  # small: 7


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(CHANNELS, 1, 1).uniform_(-0.5, 0.5))
        self.activation = nn.MaxPool2d(2)
        self.bfloat16()

    def forward(self, x):
        out = self.bias + x
        hidden = self.activation(out)
        value = F.leaky_relu(hidden, 0.1)
        return value


def get_inputs():
    return [(torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))).bfloat16()]


def get_init_inputs():
    return []
