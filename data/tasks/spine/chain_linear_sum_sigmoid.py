"""Linear followed by the sum of its outputs and a sigmoid: the sum can be taken of the weights first."""

import torch
import torch.nn as nn

ROWS = 4096  # small: 8
FEATURES = 4096  # small: 24
OUT = 4096  # small: 16


class Model(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)
        self.temperature = out ** 0.5

    def forward(self, x):
        total = self.linear(x).sum(dim=1, keepdim=True)
        return torch.sigmoid(total / self.temperature)


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, OUT]
