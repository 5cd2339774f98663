"""Separable: conv2d, batch norm, softplus, conv2d, swish and 1 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 100  # small: 2
CHANNELS = 16  # small: 16
SIDE = 16  # small: 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 7, padding=3, groups=CHANNELS, bias=False)
        self.norm = nn.BatchNorm2d(CHANNELS)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.convolution = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.eval()

    def forward(self, x):
        out = self.norm(self.conv(x))
        hidden = self.convolution(F.softplus(out))
        value = (torch.sigmoid(hidden) * hidden).add(x)
        return value


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
