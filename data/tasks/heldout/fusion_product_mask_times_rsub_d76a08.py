"""Product, mask times, rsub, mul, softmax and 1 more."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 3  # small: 2
LENGTH = 50  # small: 7
WIDTH = 2048  # small: 24
KEYS = 77  # small: 7


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(KEYS).uniform_(0.5, 1.5))

    def forward(self, x, y, mask, scale):
        t = torch.matmul(x, y)
        tmp = t * mask
        mid = 0.5 - tmp
        part = scale * mid
        t2 = F.softmax(part, dim=2) * self.weight
        return t2, tmp


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, WIDTH, KEYS) * (0.5 + torch.rand(BATCH, WIDTH, 1)), torch.rand(BATCH, LENGTH, KEYS) > 0.2, torch.randn(BATCH, LENGTH, 1)]


def get_init_inputs():
    return []
