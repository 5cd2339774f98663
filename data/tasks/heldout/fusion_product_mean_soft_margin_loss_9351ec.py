"""Product, mean, soft margin loss."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 3  # small: 2
LENGTH = 256  # small: 7
DIM = 192  # small: 24
KEYS = 48  # small: 40


class Model(nn.Module):
    def forward(self, features, y, target):
        return F.soft_margin_loss(torch.mean(features @ y, dim=0, keepdim=True), target)


def get_inputs():
    return [(torch.randn(BATCH, LENGTH, DIM) * 1.5) * (0.5 + torch.rand(())), torch.randn(BATCH, DIM, KEYS) * (0.5 + torch.rand(())), torch.where(torch.rand(1, LENGTH, KEYS) > 0.5, 1.0, -1.0)]


def get_init_inputs():
    return []
