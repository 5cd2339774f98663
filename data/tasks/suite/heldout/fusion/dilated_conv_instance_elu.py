"""A unit of a separation network: dilated convolution over time, instance norm, ELU, skip."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16  # small: 2
CHANNELS = 112  # small: 5
TIME = 2600  # small: 43
DILATION = 9  # small: 3


class Model(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False)
        self.norm = nn.InstanceNorm1d(channels, affine=True)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)
    def forward(self, x):
        return F.elu(self.norm(self.conv(x))) + x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, TIME) * (0.3 + torch.rand(BATCH, CHANNELS, 1))]


def get_init_inputs():
    return [CHANNELS, DILATION]
