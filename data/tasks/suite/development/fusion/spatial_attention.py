"""Spatial attention: mean and maximum over channels, a 7x7 convolution of the two, a sigmoid that scales every channel."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
CHANNELS = 256  # small: 6
SIDE = 56  # small: 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 1, kernel_size=7, padding=3, bias=False)

    def forward(self, x):
        pooled = torch.cat((x.mean(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)), dim=1)
        return x * torch.sigmoid(self.conv(pooled))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
