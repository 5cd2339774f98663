"""First layers of a small vision model: 5x5 convolution, max pooling, ReLU, in that order."""

import torch
import torch.nn as nn

BATCH = 64  # small: 2
CHANNELS = 48  # small: 4
SIDE = 96  # small: 14


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, kernel_size=5, padding=2)
        self.pool = nn.MaxPool2d(2)

    def forward(self, images):
        return torch.relu(self.pool(self.conv(images)))


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
