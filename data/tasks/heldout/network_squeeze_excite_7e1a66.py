"""Squeeze excite: silu, mean, mul, add, relu and 3 more."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 1  # small: 1
CHANNELS = 96  # small: 16
SIZE = 32  # small: 12


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(1, channels, 1, 1).uniform_(0.5, 1.5))
        self.bias = nn.Parameter(torch.empty(channels, 1, 1).uniform_(-0.5, 0.5))
        self.beta = nn.Parameter(torch.randn(channels, 1, 1) * 0.15)

    def _epilogue(self, h):
        h = h + self.bias
        h = F.relu(h)
        h = h + self.beta
        h = F.hardsigmoid(h)
        return h

    def forward(self, x):
        x = F.silu(x)
        h = torch.mean(x, dim=(2, 3), keepdim=True)
        h = h.mul(self.gamma)
        h = self._epilogue(h)
        return x.mul(h)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE) * (0.5 + torch.rand(BATCH, CHANNELS, SIZE, 1))]


def get_init_inputs():
    return [CHANNELS]
