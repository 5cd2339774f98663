"""A million observations projected on two dozen components: far more rows than columns."""

import torch
import torch.nn as nn

ROWS = 786432  # small: 301
FEATURES = 64  # small: 20
COMPONENTS = 24  # small: 6


class Model(nn.Module):
    def __init__(self, features, components):
        super().__init__()
        self.basis = nn.Parameter(torch.randn(features, components) / features**0.5)

    def forward(self, x):
        return x @ self.basis


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, COMPONENTS]
