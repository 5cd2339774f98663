"""Avg pool2d."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 3  # small: 2
CHANNELS = 384  # small: 40
HEIGHT = 24  # small: 8
WIDTH = 28  # small: 10


class Model(nn.Module):
    def forward(self, x):
        t = F.avg_pool2d(x, 2)
        return t


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) * (0.5 + torch.rand(BATCH, CHANNELS, HEIGHT, 1))]


def get_init_inputs():
    return []
