"""Classic convolutional network at larger sizes: convolutions with tanh and average pooling, then three linear layers."""

import torch
import torch.nn as nn

BATCH = 512  # small: 3
SIDE = 48  # small: 28
CHANNELS = 16  # small: 3
WIDE = 40  # small: 5
HIDDEN = 240  # small: 11
CLASSES = 62  # small: 10


class Model(nn.Module):
    def __init__(self, channels, wide, side, hidden, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 5), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(channels, wide, 5), nn.Tanh(), nn.AvgPool2d(2),
        )
        left = ((side - 4) // 2 - 4) // 2
        self.classify = nn.Sequential(
            nn.Linear(wide * left * left, hidden), nn.Tanh(), nn.Linear(hidden, hidden // 2), nn.Tanh(), nn.Linear(hidden // 2, classes)
        )
    def forward(self, images):
        return self.classify(torch.flatten(self.features(images), 1))


def get_inputs():
    return [torch.rand(BATCH, 1, SIDE, SIDE) * 2]


def get_init_inputs():
    return [CHANNELS, WIDE, SIDE, HIDDEN, CLASSES]
