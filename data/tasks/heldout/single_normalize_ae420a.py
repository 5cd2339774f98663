"""Normalize."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS = 64  # small: 16
FRAMES = 12  # small: 4
SIDE = 12  # small: 6


class Model(nn.Module):
    def forward(self, inputs):
        return F.normalize(inputs, dim=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, SIDE, SIDE) * 2.0]


def get_init_inputs():
    return []
