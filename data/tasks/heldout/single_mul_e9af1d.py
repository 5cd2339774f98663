"""Mul."""

import torch
from torch import nn

BATCH = 16384  # small: 5
DIM = 126  # small: 10


class Model(nn.Module):
    def forward(self, x, scale):
        return torch.mul(x, scale)


def get_inputs():
    return [torch.randn(BATCH, DIM) * 2.0, torch.randn(BATCH, DIM)]


def get_init_inputs():
    return []
