"""Metric learning: distances of a batch to itself, the farthest friend and the nearest stranger of each."""

import torch
import torch.nn as nn

SAMPLES = 4096  # small: 26
WIDTH = 128  # small: 10
CLASSES = 256  # small: 5


class Model(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, features, labels):
        apart = torch.cdist(features, features)
        same = labels[:, None] == labels[None, :]
        friend = apart.masked_fill(~same, 0.0).amax(dim=1)
        stranger = apart.masked_fill(same, 1e4).amin(dim=1)
        return torch.relu(friend - stranger + self.margin)


def get_inputs():
    return [torch.randn(SAMPLES, WIDTH), torch.randint(0, CLASSES, (SAMPLES,))]


def get_init_inputs():
    return [0.5]
