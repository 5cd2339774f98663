"""Conv2d, batch norm, l1 loss."""

import torch
import torch.nn as nn

BATCH = 512  # small: 3
CHANNELS = 16  # small: 16
SIDE = 13  # small: 8
OUT_CHANNELS = 32  # small: 16


class Model(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, kernel_size=1, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.criterion = nn.L1Loss()
        self.eval()

    def forward(self, features, target):
        y = self.norm(self.conv(features))
        y = self.criterion(y, target)
        return y


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(())), torch.randn(BATCH, OUT_CHANNELS, (SIDE - 1) // 2 + 1, (SIDE - 1) // 2 + 1) * (0.5 + torch.rand(()))]


def get_init_inputs():
    return [CHANNELS, OUT_CHANNELS]
