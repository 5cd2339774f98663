"""Gate: linear, linear, relu, silu, mul and 1 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 1  # small: 1
TOKENS = 31  # small: 4
DIM = 2048  # small: 24


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim, bias=False)
        self.fc = nn.Linear(dim, dim)
        self.beta = nn.Parameter(torch.randn(dim) * 0.15)
        self.layer = nn.ReLU()

    def forward(self, x):
        features = self.linear(x)
        residual = self.fc(x)
        update = self.layer(features)
        mixed = F.silu(residual, inplace=True)
        return torch.add(mixed * update, self.beta)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, DIM) * 1.5]


def get_init_inputs():
    return [DIM]
