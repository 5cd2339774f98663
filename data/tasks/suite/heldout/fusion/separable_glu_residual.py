"""Depthwise and pointwise convolution over time, a gate from half the channels, the input added back."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16  # small: 2
CHANNELS = 160  # small: 6
TIME = 1300  # small: 31
KERNEL = 31  # small: 7


class Model(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        self.depthwise = nn.Conv1d(channels, channels, kernel, padding=kernel // 2, groups=channels)
        self.pointwise = nn.Conv1d(channels, 2 * channels, 1)
    def forward(self, x):
        return x + F.glu(self.pointwise(self.depthwise(x)), dim=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, TIME)]


def get_init_inputs():
    return [CHANNELS, KERNEL]
