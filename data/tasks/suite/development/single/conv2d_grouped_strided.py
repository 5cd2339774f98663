"""Grouped 3x3 convolution with stride two, without bias: where a wide residual stage halves its resolution."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32  # small: 2
CHANNELS = 256  # small: 12
SIDE = 56  # small: 9
GROUPS = 32  # small: 3


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, channels // groups, 3, 3) * 0.1)
        self.groups = groups

    def forward(self, x):
        return F.conv2d(x, self.weight, stride=2, padding=1, groups=self.groups)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
