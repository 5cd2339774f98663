"""Divide, mul, mul, hardsigmoid, sigmoid and 1 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 16  # small: 3
CHANNELS = 3  # small: 3
SIDE = 80  # small: 8


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(channels, 1, 1) * 1.0 + 0.5)
        self.activation = nn.Hardsigmoid()
        self.bfloat16()

    def forward(self, x, gate):
        features = x.div(0.75)
        features = features * self.weight
        features = x * features
        features = self.activation(features)
        gate = F.sigmoid(gate)
        return gate * features


def get_inputs():
    return [(torch.randn(BATCH, CHANNELS, SIDE, SIDE)).bfloat16(), (torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 0.7).bfloat16()]


def get_init_inputs():
    return [CHANNELS]
