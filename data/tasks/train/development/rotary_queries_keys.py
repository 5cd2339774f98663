"""Rotary position embedding of queries and keys, half-split layout."""

import torch
import torch.nn as nn

BATCH = 8  # cpu: 2  # small: 2
HEADS = 16  # cpu: 8  # small: 2
LENGTH = 2048  # cpu: 256  # small: 5
HEAD = 128  # cpu: 64  # small: 8


def turned(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        rates = 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.arange(LENGTH)[:, None] * rates[None, :]
        self.register_buffer("cos", torch.cat((angles, angles), dim=-1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), dim=-1).sin())

    def forward(self, q, k):
        return q * self.cos + turned(q) * self.sin, k * self.cos + turned(k) * self.sin


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, HEAD), torch.randn(BATCH, HEADS, LENGTH, HEAD)]


def get_init_inputs():
    return []
