"""A linear layer and a ReLU."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.layer(x))


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return [512]
