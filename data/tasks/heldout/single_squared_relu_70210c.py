"""Squared relu."""

import torch
import torch.nn as nn

BATCH = 24  # small: 2
CHANNELS = 8  # small: 8
HEIGHT = 48  # small: 9
WIDTH = 48  # small: 8


class Model(nn.Module):
    def forward(self, inputs):
        return torch.relu(inputs) ** 2


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
