"""Causal linear attention with positive features, its sums kept as running sums over time."""

import torch
import torch.nn as nn
import torch.nn.functional as F

HEADS = 64  # small: 3
TOKENS = 512  # small: 11
DEPTH = 32  # small: 6


class Model(nn.Module):
    def forward(self, q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=1)
        total = torch.cumsum(k, dim=1)
        numerator = (q.unsqueeze(-1) * state).sum(dim=2)
        return numerator / (q * total).sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(HEADS, TOKENS, DEPTH) for _ in range(3)]


def get_init_inputs():
    return []
