"""Two convolutions of a style network, instance norm and ReLU after each."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 32  # small: 3
WIDTH = 64  # small: 4
SIZE = 256  # small: 12


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.InstanceNorm2d(width, affine=True), nn.InstanceNorm2d(width, affine=True)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)

    def forward(self, x):
        x = torch.relu(self.norm1(self.first(x)))
        return torch.relu(self.norm2(self.second(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
