"""Modulation: layer norm, shift, mul, add, hardswish and 4 more."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 1  # small: 1
SEQ = 197  # small: 5
DIM = 768  # small: 40


class Model(nn.Module):
    def __init__(self, dim, seq):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.gamma = nn.Parameter(torch.empty(seq, dim).uniform_(0.5, 1.5))

    def forward(self, x, scale, shift):
        out = self.norm(x)
        hidden = scale.add(1.0)
        value = (hidden * out) + shift
        state = F.hardswish(value, inplace=True)
        result = torch.mul(self.gamma * state, 2.0) * 0.5
        out2 = x + result
        return out2


def get_inputs():
    return [torch.randn(BATCH, SEQ, DIM) * 2.0, torch.randn(BATCH, 1, DIM), torch.randn(BATCH, 1, DIM)]


def get_init_inputs():
    return [DIM, SEQ]
