"""Two inception-like modules: four branches of convolutions and a pool, concatenated."""

import torch
import torch.nn as nn

BATCH = 10  # small: 2
SIZE = 112  # small: 12
WIDTH = 96  # small: 8


class Branches(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.one = nn.Conv2d(inputs, width, 1)
        self.three = nn.Sequential(nn.Conv2d(inputs, width // 2, 1), nn.Conv2d(width // 2, width, 3, padding=1))
        self.five = nn.Sequential(nn.Conv2d(inputs, width // 4, 1), nn.Conv2d(width // 4, width // 2, 5, padding=2))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(inputs, width // 2, 1))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = Branches(2 * width, width), Branches(3 * width, width)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def get_inputs():
    return [torch.randn(BATCH, 2 * WIDTH, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH]
