"""Two aggregated residual blocks in eval mode: 1x1, grouped 3x3, 1x1 convolutions with batch norm, shortcut, ReLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
CHANNELS = 192  # small: 8
INNER = 96  # small: 6
GROUPS = 24  # small: 3
SIDE = 36  # small: 7


def unit(channels_in, channels_out, kernel, groups=1):
    norm = nn.BatchNorm2d(channels_out)
    nn.init.uniform_(norm.weight, 0.6, 1.4)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    norm.running_mean.normal_(0.0, 0.1)
    norm.running_var.uniform_(0.2, 0.6)
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2, groups=groups, bias=False), norm)


class Block(nn.Module):
    def __init__(self, channels, inner, groups):
        super().__init__()
        self.reduce, self.spread = unit(channels, inner, 1), unit(inner, inner, 3, groups)
        self.restore = unit(inner, channels, 1)
    def forward(self, x):
        y = F.relu(self.reduce(x), inplace=True)
        y = F.relu(self.spread(y), inplace=True)
        return F.relu(self.restore(y) + x, inplace=True)


class Model(nn.Module):
    def __init__(self, channels, inner, groups):
        super().__init__()
        self.blocks = nn.Sequential(Block(channels, inner, groups), Block(channels, inner, groups))
        self.eval()
    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, INNER, GROUPS]
