"""Fourier features of coordinates: frequencies, sine and cosine side by side, then a linear layer."""

import torch
import torch.nn as nn

POINTS = 262144  # small: 31
OCTAVES = 10  # small: 4
WIDTH = 128  # small: 9


class Model(nn.Module):
    def __init__(self, octaves, width):
        super().__init__()
        self.register_buffer("frequencies", 2.0 ** torch.arange(octaves))
        self.project = nn.Linear(6 * octaves, width)

    def forward(self, points):
        phase = (points.unsqueeze(-1) * self.frequencies).flatten(1)
        features = torch.stack((phase.sin(), phase.cos()), dim=-1).flatten(1)
        return torch.relu(self.project(features))


def get_inputs():
    return [torch.rand(POINTS, 3) * 0.05]


def get_init_inputs():
    return [OCTAVES, WIDTH]
