"""Rotary embedding of queries in the interleaved layout: even and odd features turned as pairs."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
HEADS = 16  # small: 3
TOKENS = 1024  # small: 13
DEPTH = 64  # small: 8


class Model(nn.Module):
    def __init__(self, tokens, depth):
        super().__init__()
        rates = 10000.0 ** (-torch.arange(0, depth, 2) / depth)
        angle = torch.arange(tokens)[:, None] * rates
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, q):
        even, odd = q[..., 0::2], q[..., 1::2]
        turned = torch.stack((even * self.cos - odd * self.sin, even * self.sin + odd * self.cos), dim=-1)
        return turned.flatten(-2)


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, DEPTH)]


def get_init_inputs():
    return [TOKENS, DEPTH]
