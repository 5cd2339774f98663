"""Largest value along the middle of three dimensions: max pooling over time."""

import torch
import torch.nn as nn

BATCH = 64  # small: 3
TIME = 1024  # small: 17
CHANNELS = 1024  # small: 20


class Model(nn.Module):
    def forward(self, frames):
        return torch.amax(frames, dim=1)


def get_inputs():
    return [torch.randn(BATCH, TIME, CHANNELS)]


def get_init_inputs():
    return []
