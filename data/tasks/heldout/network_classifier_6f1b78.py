"""Classifier: conv2d, group norm, squared relu, avg pool2d, mean and 2 more."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 1  # small: 1
CHANNELS = 96  # small: 24
SIZE = 28  # small: 9
OUT_CHANNELS = 16  # small: 16
CLASSES = 16  # small: 16


class Model(nn.Module):
    def __init__(self, channels, out_channels, classes):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, kernel_size=3, stride=2, padding=1)
        self.norm = nn.GroupNorm(8, out_channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.weight = nn.Parameter(torch.empty(out_channels, classes).uniform_(-0.25, 0.25))

    def forward(self, features):
        t = self.conv(features)
        tmp = self.norm(t)
        mid = F.relu(tmp).square()
        part = F.avg_pool2d(mid, 2)
        t2 = part.mean((-2, -1))
        t3 = t2 @ self.weight
        t4 = F.silu(t3, inplace=True)
        return t4


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE) * (0.5 + torch.rand(BATCH, CHANNELS, SIZE, 1))]


def get_init_inputs():
    return [CHANNELS, OUT_CHANNELS, CLASSES]
