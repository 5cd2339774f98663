"""Masked fill, cross entropy."""

import torch
import torch.nn.functional as F
import torch.nn as nn

ROWS = 6  # small: 3
DIM = 10007  # small: 7


class Model(nn.Module):
    def forward(self, x, mask, target):
        return F.cross_entropy(x.masked_fill(~mask, 0.0), target)


def get_inputs():
    return [(torch.randn(ROWS, DIM) + 0.5) * (0.5 + torch.rand(())), torch.rand(ROWS, DIM) > 0.5, torch.randint(DIM, (ROWS,))]


def get_init_inputs():
    return []
