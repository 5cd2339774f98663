"""Scale, tanh, tanh, lerp, mul and 3 more."""

import torch
import torch.nn.functional as F
from torch import nn

COUNT = 1590915  # small: 64


class Model(nn.Module):
    def __init__(self, count, factor):
        super().__init__()
        self.factor = factor
        self.gamma = nn.Parameter(torch.empty(count).uniform_(0.5, 1.5))
        self.bias = nn.Parameter(torch.randn(count) * 0.25)
        self.layer = nn.Sigmoid()

    def forward(self, x, y, gate):
        h = F.tanh(torch.mul(x, self.factor)).tanh()
        z = h.lerp(y, 0.3)
        u = torch.add(torch.mul(z, self.gamma), self.bias, alpha=0.3)
        v = self.layer(gate)
        w = v * u
        return w


def get_inputs():
    return [torch.randn(COUNT), torch.randn(COUNT), torch.randn(COUNT)]


def get_init_inputs():
    return [COUNT, 1.64]
