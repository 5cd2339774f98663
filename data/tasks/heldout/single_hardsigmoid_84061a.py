"""Hardsigmoid."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 4  # small: 2
CHANNELS = 16  # small: 16
SIDE = 48  # small: 12


class Model(nn.Module):
    def forward(self, x):
        h = F.hardsigmoid(x)
        return h


def get_inputs():
    return [(torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))).half()]


def get_init_inputs():
    return []
