"""Neg."""

import torch
from torch import nn

BATCH = 64  # small: 2
CHANNELS = 32  # small: 16
FRAMES = 8  # small: 4
SIDE = 8  # small: 8


class Model(nn.Module):
    def forward(self, inputs):
        inputs = torch.neg(inputs)
        return inputs


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, SIDE, SIDE)]


def get_init_inputs():
    return []
