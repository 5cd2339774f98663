"""Scale, relu, gelu tanh, mul."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 1875  # small: 2
LENGTH = 31  # small: 5
DIM = 41  # small: 7


class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, inputs, gate):
        h = torch.mul(inputs, self.factor)
        z = torch.relu(h)
        u = F.gelu(gate, approximate='tanh')
        v = u * z
        return v


def get_inputs():
    return [torch.randn(BATCH, LENGTH, DIM) * 0.5, torch.randn(BATCH, LENGTH, DIM) * (0.5 + torch.rand(BATCH, LENGTH, 1))]


def get_init_inputs():
    return [2.0]
