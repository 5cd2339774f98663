"""Separable: conv2d, group norm, softsign, conv2d, hardsigmoid and 1 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 1  # small: 1
CHANNELS = 96  # small: 40
SIDE = 48  # small: 9
FILTERS = 128  # small: 40


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels)
        self.convolution = nn.Conv2d(channels, filters, kernel_size=1, bias=False)
        self.weight = nn.Parameter(torch.empty(filters, 1, 1).uniform_(0.5, 1.5))
        self.act = nn.Softsign()
        self.activation = nn.Hardsigmoid()

    def forward(self, features):
        features = self.conv(features)
        features = F.group_norm(features, 4)
        features = self.act(features)
        features = self.convolution(features)
        features = self.activation(features)
        return features * self.weight


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))]


def get_init_inputs():
    return [CHANNELS, FILTERS]
