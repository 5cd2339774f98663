"""3x3 convolution and ReLU clipped at 6. The convolution dominates."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32  # small: 2
CHANNELS_IN = 64  # small: 3
CHANNELS_OUT = 128  # small: 6
SIDE = 56  # small: 8


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        nn.init.normal_(self.conv.weight, std=4.0 / (9 * channels_in) ** 0.5)  # large enough to reach the clip

    def forward(self, x):
        return F.relu6(self.conv(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
