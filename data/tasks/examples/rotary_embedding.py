"""Rotary position embedding of queries and keys, in the half-split layout, tables computed once."""

import torch
import torch.nn as nn

BATCH = 2  # small: 2
HEADS = 16  # small: 3
SEQUENCE = 512  # small: 11
HEAD_DIM = 64  # small: 8


class Model(nn.Module):
    def __init__(self, sequence, head_dim, base=10000.0):
        super().__init__()
        frequency = base ** (-torch.arange(0, head_dim, 2).float() / head_dim)
        angle = torch.outer(torch.arange(sequence).float(), frequency)
        angle = torch.cat([angle, angle], dim=-1)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    @staticmethod
    def rotate_half(x):
        left, right = x.chunk(2, dim=-1)
        return torch.cat([-right, left], dim=-1)

    def forward(self, query, key):
        query = query * self.cos + self.rotate_half(query) * self.sin
        key = key * self.cos + self.rotate_half(key) * self.sin
        return query, key


def get_inputs():
    return [torch.randn(BATCH, HEADS, SEQUENCE, HEAD_DIM), torch.randn(BATCH, HEADS, SEQUENCE, HEAD_DIM)]


def get_init_inputs():
    return [SEQUENCE, HEAD_DIM]
