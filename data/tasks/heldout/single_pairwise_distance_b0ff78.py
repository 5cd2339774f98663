"""Pairwise distance."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 128  # small: 7
DIM = 16384  # small: 24


class Model(nn.Module):
    def forward(self, x, other):
        return F.pairwise_distance(x, other)


def get_inputs():
    return [torch.rand(BATCH, DIM) + 0.1, torch.randn(BATCH, DIM)]


def get_init_inputs():
    return []
