"""A few thousand rows of a quarter million numbers, each times the same vector."""

import torch
import torch.nn as nn

ROWS = 4000  # small: 9
WIDTH = 262144  # small: 300


class Model(nn.Module):
    def forward(self, a, x):
        return torch.matmul(a, x)


def get_inputs():
    return [torch.randn(ROWS, WIDTH), torch.randn(WIDTH, 1)]


def get_init_inputs():
    return []
