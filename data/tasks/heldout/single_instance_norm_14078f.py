"""Instance norm."""

import torch
import torch.nn as nn

BATCH = 1  # small: 1
CHANNELS = 96  # small: 16
HEIGHT = 56  # small: 7
WIDTH = 56  # small: 10


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
