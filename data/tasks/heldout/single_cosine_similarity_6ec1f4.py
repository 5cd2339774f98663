"""Cosine similarity."""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 256  # small: 3
COLUMNS = 1024  # small: 16


class Model(nn.Module):
    def forward(self, x, other):
        out = F.cosine_similarity(x, other, dim=1)
        return out


def get_inputs():
    return [torch.randn(ROWS, COLUMNS) * 2.0, torch.randn(ROWS, COLUMNS) + 1.0]


def get_init_inputs():
    return []
