"""Mul, neg, mul, add, scale and 2 more."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 8  # small: 3
SEQ = 16  # small: 7
DIM = 1152  # small: 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(SEQ, DIM).uniform_(0.5, 1.5))
        self.beta = nn.Parameter(torch.empty(DIM).uniform_(-0.3, 0.3))

    def forward(self, x, scale):
        features = (torch.neg(torch.mul(x, scale)) * self.gamma).add(self.beta)
        features = features * 3.0
        residual = F.silu(F.softmax(features, dim=-1))
        return residual


def get_inputs():
    return [torch.randn(BATCH, SEQ, DIM) * (0.5 + torch.rand(BATCH, SEQ, 1)), torch.randn(BATCH, SEQ, DIM)]


def get_init_inputs():
    return []
