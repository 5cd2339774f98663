"""Group norm with 32 groups of feature maps, as in detection heads."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16  # small: 2
CHANNELS = 256  # small: 8
SIDE = 96  # small: 7
GROUPS = 32  # small: 4


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.groups = groups
        self.gain = nn.Parameter(1 + 0.2 * torch.randn(channels))
        self.bias = nn.Parameter(0.2 * torch.randn(channels))

    def forward(self, x):
        return F.group_norm(x, self.groups, self.gain, self.bias, eps=1e-5)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
