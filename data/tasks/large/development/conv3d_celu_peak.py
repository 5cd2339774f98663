"""A 3-D convolution of video, CELU, a scale by channel, the peak over time."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 16  # small: 3
WIDTH = 48  # small: 4
FRAMES = 18  # small: 6
SIZE = 96  # small: 9


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv3d(channels, width, 3)
        self.scale = nn.Parameter(torch.rand(width, 1, 1, 1) + 0.5)

    def forward(self, x):
        return (nn.functional.celu(self.conv(x)) * self.scale).amax(2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
