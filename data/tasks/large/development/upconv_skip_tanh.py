"""A decoder step: transposed convolution, the encoder's features added, tanh."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
CHANNELS = 64  # small: 4
WIDTH = 48  # small: 3
SIZE = 128  # small: 7


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, width, 4, stride=2, padding=1)

    def forward(self, x, skip):
        return torch.tanh(self.up(x) + skip)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE), torch.randn(BATCH, WIDTH, 2 * SIZE, 2 * SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
