"""Silu, norm, shift, div, norm1 and 5 more."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 2  # small: 2
CHANNELS = 24  # small: 16
SIDE = 56  # small: 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.activation = nn.SiLU()
        self.act = nn.ELU()

    def forward(self, features, gate):
        features = F.silu(features)
        t = features.norm(dim=1, keepdim=True)
        t = 0.5 + t
        features = features / t
        tmp = torch.linalg.vector_norm(features, 1, dim=-1, keepdim=True) + 0.5
        features = features / tmp
        gate = self.activation(gate)
        return self.act(torch.mul(features, gate))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) + 1.0, torch.randn(BATCH, CHANNELS, 1, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, 1, 1))]


def get_init_inputs():
    return []
