"""A projection whose last operator transposes: the strides of the result are that operator's."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(64, 96)
        self.norm = nn.BatchNorm1d(96)

    def forward(self, x):
        return torch.relu(self.norm(self.proj(x).transpose(1, 2)).transpose(1, 2)).transpose(1, 2)


def get_inputs():
    return [torch.randn(16, 128, 64)]


def get_init_inputs():
    return []
