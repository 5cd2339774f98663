"""Conv2d."""

import torch
import torch.nn as nn

BATCH = 4  # small: 3
CHANNELS = 80  # small: 24
SIDE = 16  # small: 9


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, kernel_size=3, padding=1, groups=CHANNELS)

    def forward(self, inputs):
        y = self.conv(inputs)
        return y


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 2.0]


def get_init_inputs():
    return []
