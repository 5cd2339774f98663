"""Swish, mul, rms norm, cross entropy."""

import torch
from torch import nn
from torch.nn import functional as F

N = 384  # small: 3
DIM = 640  # small: 16


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(dim).uniform_(0.5, 1.5))
        self.weight = nn.Parameter(torch.rand(dim) * 1.0 + 0.5)

    def forward(self, x, target):
        x = x * torch.sigmoid(x)
        x = self.gamma * x
        x = F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)
        return F.cross_entropy(x, target, reduction='none')


def get_inputs():
    return [torch.rand(N, DIM) + 0.1, torch.randint(DIM, (N,))]


def get_init_inputs():
    return [DIM]
