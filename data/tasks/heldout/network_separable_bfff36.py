"""Separable: conv2d, group norm, relu, conv2d, batch norm and 1 more."""

import torch
from torch import nn

BATCH = 1  # small: 1
CHANNELS = 16  # small: 16
SIDE = 96  # small: 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, kernel_size=7, padding=3, groups=CHANNELS)
        self.norm = nn.GroupNorm(4, CHANNELS)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.convolution = nn.Conv2d(CHANNELS, CHANNELS, kernel_size=1)
        self.bn = nn.BatchNorm2d(CHANNELS)
        nn.init.uniform_(self.bn.weight, 0.5, 1.5)
        nn.init.uniform_(self.bn.bias, -0.5, 0.5)
        self.bn.running_mean.normal_(0.0, 0.2)
        self.bn.running_var.uniform_(0.4, 1.2)
        self.layer = nn.ReLU(inplace=True)
        self.eval()

    def _finish(self, out):
        out = self.layer(out)
        out = self.convolution(out)
        return out

    def forward(self, x):
        out = self.conv(x)
        out = self.norm(out)
        out = self._finish(out)
        return self.bn(out) + x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
