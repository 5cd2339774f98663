"""Clamp, mul, add."""

import torch
import torch.nn as nn

N = 4  # small: 4
FEATURES = 46377  # small: 7


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features).uniform_(0.5, 1.5))
        self.beta = nn.Parameter(torch.randn(features) * 0.15)

    def forward(self, inputs):
        y = torch.clamp(inputs, min=-0.66, max=2.35).mul(self.weight)
        y = torch.add(y, self.beta)
        return y


def get_inputs():
    return [torch.randn(N, FEATURES) + 1.0]


def get_init_inputs():
    return [FEATURES]
