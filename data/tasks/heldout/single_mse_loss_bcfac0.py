"""Mse loss."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 64  # small: 2
LENGTH = 31  # small: 4
DIM = 1280  # small: 40


class Model(nn.Module):
    def forward(self, x, target):
        return F.mse_loss(x, target)


def get_inputs():
    return [(torch.randn(BATCH, LENGTH, DIM) + 1.0) * (0.5 + torch.rand(())), (torch.randn(BATCH, LENGTH, DIM) * 1.5) * (0.5 + torch.rand(()))]


def get_init_inputs():
    return []
