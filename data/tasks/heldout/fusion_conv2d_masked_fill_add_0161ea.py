"""Conv2d, masked fill, add, add."""

import torch
import torch.nn as nn

BATCH = 1  # small: 1
CHANNELS = 24  # small: 16
HEIGHT = 80  # small: 12
WIDTH = 14  # small: 10
FILTERS = 128  # small: 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, FILTERS, kernel_size=3, stride=2, padding=1)

    def forward(self, inputs, mask, residual, skip):
        t = self.conv(inputs)
        tmp = torch.masked_fill(t, ~mask, 0.5)
        mid = (tmp + residual) + skip
        return mid


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) * (0.5 + torch.rand(BATCH, CHANNELS, HEIGHT, 1)), torch.rand(BATCH, FILTERS, (HEIGHT - 1) // 2 + 1, (WIDTH - 1) // 2 + 1) > 0.5, torch.randn(BATCH, 1, (HEIGHT - 1) // 2 + 1, (WIDTH - 1) // 2 + 1) * 0.5, torch.randn(FILTERS, (HEIGHT - 1) // 2 + 1, (WIDTH - 1) // 2 + 1)]


def get_init_inputs():
    return []
