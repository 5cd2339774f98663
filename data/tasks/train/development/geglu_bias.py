"""GEGLU with a bias in front of the gate."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 16384  # cpu: 2048  # small: 6
WIDTH = 2048  # cpu: 1024  # small: 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(0.3 * torch.randn(2 * WIDTH))

    def forward(self, x):
        value, gate = (x + self.bias).chunk(2, dim=-1)
        return value * F.gelu(gate, approximate="tanh")


def get_inputs():
    return [torch.randn(TOKENS, 2 * WIDTH)]


def get_init_inputs():
    return []
