"""Second half of a residual block in eval mode: 1x1 convolution, batch norm, shortcut, ReLU."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
CHANNELS_IN = 64  # small: 4
CHANNELS_OUT = 256  # small: 8
SIDE = 56  # small: 7


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=1, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.1)
        self.norm.running_var.uniform_(0.2, 0.6)
        self.eval()

    def forward(self, x, shortcut):
        return torch.relu(self.norm(self.conv(x)) + shortcut)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE), torch.randn(BATCH, CHANNELS_OUT, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
