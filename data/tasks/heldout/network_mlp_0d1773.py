"""Mlp: linear, selu, linear, mish."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 1024  # small: 5
DIM = 96  # small: 24
HIDDEN = 384  # small: 96


class Model(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.linear = nn.Linear(dim, hidden)
        self.fc = nn.Linear(hidden, dim)

    def forward(self, x):
        t = F.mish(self.fc(F.selu(self.linear(x))))
        return t


def get_inputs():
    return [torch.randn(BATCH, DIM)]


def get_init_inputs():
    return [DIM, HIDDEN]
