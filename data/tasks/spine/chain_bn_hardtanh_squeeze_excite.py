"""Batch norm in eval mode, hard tanh, squeeze to channel means, sigmoid, excite."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32  # small: 3
CHANNELS = 128  # small: 6
SIDE = 56  # small: 7


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.3)
        self.norm.running_var.uniform_(0.5, 1.5)
        self.gain = nn.Parameter(torch.empty(channels, 1, 1).uniform_(1.0, 4.0))
        self.eval()

    def forward(self, x):
        x = F.hardtanh(self.norm(x))
        squeeze = x.mean(dim=(2, 3), keepdim=True)
        return x * torch.sigmoid(squeeze * self.gain)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) + torch.randn(BATCH, CHANNELS, 1, 1)]


def get_init_inputs():
    return [CHANNELS]
