"""Avg pool2d."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 64  # small: 3
CHANNELS = 64  # small: 40
SIDE = 13  # small: 7


class Model(nn.Module):
    def forward(self, x):
        x = F.avg_pool2d(x, 3, stride=2, padding=1)
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
