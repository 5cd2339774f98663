"""Modulation: rms norm, shift, mul, add, logsigmoid and 3 more."""

import torch
from torch import nn

BATCH = 512  # small: 5
WIDTH = 128  # small: 40


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-5)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        self.gamma = nn.Parameter(torch.rand(width) * 1.0 + 0.5)
        self.activation = nn.LogSigmoid()

    def forward(self, x, scale, shift):
        y = self.norm(x)
        scale = scale.add(1.0)
        y = y.mul(scale)
        y = shift + y
        y = self.activation(y)
        y = self.gamma * y
        y = y * 2.0
        return y + x


def get_inputs():
    return [torch.randn(BATCH, WIDTH) * 0.7, torch.randn(BATCH, WIDTH) * (0.5 + torch.rand(BATCH, 1)), torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
