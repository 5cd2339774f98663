"""Chunk, relu, mul."""

import torch
from torch import nn

BATCH = 1455  # small: 3
CHANNELS = 64  # small: 40
LENGTH = 16  # small: 12


class Model(nn.Module):
    def forward(self, x):
        h, z = x.chunk(2, dim=1)
        u = torch.relu(z)
        return torch.mul(h, u)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH) * (0.5 + torch.rand(BATCH, CHANNELS, 1))]


def get_init_inputs():
    return []
