"""Linear, norm, shift, div, silu and 2 more."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
HEADS = 4  # small: 3
QUERIES = 77  # small: 4
KEYS = 77  # small: 17
FEATURES = 96  # small: 16


class Model(nn.Module):
    def __init__(self, keys, features):
        super().__init__()
        self.linear = nn.Linear(keys, features)
        self.activation = nn.SiLU()
        self.layer = nn.GELU(approximate='tanh')

    def forward(self, x, gate):
        x = self.linear(x)
        features = x.norm(dim=(-2, -1), keepdim=True).add(0.1)
        x = torch.div(x, features)
        x = self.activation(x)
        gate = self.layer(gate)
        x = x * gate
        return x


def get_inputs():
    return [torch.randn(BATCH, HEADS, QUERIES, KEYS) + 0.25, torch.randn(BATCH, HEADS, QUERIES, FEATURES) * 0.5]


def get_init_inputs():
    return [KEYS, FEATURES]
