"""A generator's step in training mode: a transposed convolution that doubles the side, batch norm, ReLU."""

import torch
import torch.nn as nn

BATCH = 48  # small: 3
CHANNELS = 96  # small: 4
WIDTH = 72  # small: 3
SIZE = 96  # small: 6


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, width, 4, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)
    def forward(self, x):
        return torch.relu(self.norm(self.up(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
