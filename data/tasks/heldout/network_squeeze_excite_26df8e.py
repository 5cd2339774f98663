"""Squeeze excite: batch norm, swish, mean, conv2d, relu and 4 more."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 64  # small: 2
CHANNELS = 80  # small: 40
SIZE = 7  # small: 7


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.conv = nn.Conv2d(channels, channels, kernel_size=1, bias=False)
        self.bias = nn.Parameter(torch.rand(channels, 1, 1) * 1.0 - 0.5)
        self.eval()

    def forward(self, x):
        out = self.norm(x)
        hidden = out * out.sigmoid()
        value = hidden.mean((-2, -1), keepdim=True)
        state = self.conv(value)
        result = torch.relu_(state)
        out2 = result.sub(self.bias)
        out3 = F.hardsigmoid(out2)
        out4 = torch.mul(hidden, out3)
        return x + out4


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS]
