"""Classifier: conv2d, group norm, tanh, mean, linear and 1 more."""

import torch
import torch.nn as nn

BATCH = 14  # small: 2
CHANNELS = 24  # small: 24
SIZE = 27  # small: 12
CHANNELS_OUT = 48  # small: 24
CLASSES = 100  # small: 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS_OUT, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(2, CHANNELS_OUT)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.linear = nn.Linear(CHANNELS_OUT, CLASSES)
        self.layer = nn.Tanh()
        self.activation = nn.SiLU()

    def forward(self, images):
        y = self.linear(self.layer(self.norm(self.conv(images))).mean(dim=(-2, -1)))
        return self.activation(y)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []
