"""The convolution block of a deployed vision backbone: 3x3 convolution, batch norm, ReLU, in eval mode.

The convolution takes most of the time.
"""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS_IN = 32  # small: 4
CHANNELS_OUT = 64  # small: 6
SIDE = 56  # small: 9


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.1)
        self.norm.running_var.uniform_(0.2, 0.6)
        self.eval()

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
