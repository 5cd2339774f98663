"""GEGLU feed-forward gate: split the projection, exact GELU on one half, times the other half."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # small: 2
SEQUENCE = 256  # small: 7
INNER = 2048  # small: 24


class Model(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2 * inner) * 0.1)

    def forward(self, projected):
        value, gate = (projected + self.bias).chunk(2, dim=-1)
        return value * F.gelu(gate)


def get_inputs():
    return [torch.randn(BATCH, SEQUENCE, 2 * INNER)]


def get_init_inputs():
    return [INNER]
