"""Max pooling of volumes with dilated, overlapping windows."""

import torch
import torch.nn as nn

BATCH = 4  # small: 1
CHANNELS = 24  # small: 3
DEPTH = 30  # small: 9
SIDE = 96  # small: 11


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool3d(3, stride=2, padding=1, dilation=2)
    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, DEPTH, SIDE, SIDE)]


def get_init_inputs():
    return []
