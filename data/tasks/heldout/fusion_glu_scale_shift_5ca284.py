"""Glu, scale, shift, mul."""

import torch
import torch.nn as nn

BATCH = 3  # small: 3
CHANNELS = 8  # small: 8
SIDE = 256  # small: 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.GLU(dim=1)

    def forward(self, features, scale):
        features = self.act(features)
        features = torch.mul(features, 0.5)
        features = features - 0.5
        return features.mul(scale)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE) + 0.1, torch.randn(BATCH, CHANNELS // 2, SIDE, SIDE) * 1.5]


def get_init_inputs():
    return []
