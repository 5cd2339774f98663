"""Mse loss."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 8  # small: 2
LENGTH = 31  # small: 4
HIDDEN_SIZE = 4096  # small: 40


class Model(nn.Module):
    def forward(self, x, target):
        return F.mse_loss(x, target, reduction='none')


def get_inputs():
    return [torch.randn(BATCH, LENGTH, HIDDEN_SIZE) * (0.5 + torch.rand(BATCH, LENGTH, 1)), torch.randn(BATCH, LENGTH, HIDDEN_SIZE) + 1.0]


def get_init_inputs():
    return []
