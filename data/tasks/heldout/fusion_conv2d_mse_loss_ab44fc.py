"""Conv2d, mse loss."""

import torch
import torch.nn as nn

BATCH = 3  # small: 3
CHANNELS = 160  # small: 16
SIDE = 96  # small: 7
OUT_CHANNELS = 8  # small: 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, OUT_CHANNELS, 1, stride=2)
        self.criterion = nn.MSELoss()

    def forward(self, x, target):
        t = self.conv(x)
        return self.criterion(t, target)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE) + 0.1, torch.randn(BATCH, OUT_CHANNELS, (SIDE - 1) // 2 + 1, (SIDE - 1) // 2 + 1) * (0.5 + torch.rand(()))]


def get_init_inputs():
    return []
