"""Normalize, slice, glu, softmax."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 4  # small: 2
HEADS = 4  # small: 2
TOKENS = 1000  # small: 6
DEPTH = 16  # small: 16


class Model(nn.Module):
    def forward(self, inputs):
        out = F.normalize(inputs, p=2.0, dim=3)
        hidden = out[..., 1::2]
        value = F.glu(hidden, dim=-1)
        return torch.softmax(value, dim=-1)


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, DEPTH)]


def get_init_inputs():
    return []
