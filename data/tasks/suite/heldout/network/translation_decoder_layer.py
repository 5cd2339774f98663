"""Decoder layer of a translation model: causal self-attention, attention to the source, feed-forward, each with a norm after."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
TARGET = 96  # small: 6
SOURCE = 120  # small: 8
WIDTH = 512  # small: 16
HEADS = 8  # small: 4
HIDDEN = 1536  # small: 20


def norm(width):
    made = nn.LayerNorm(width)
    nn.init.normal_(made.weight, 1.0, 0.2)
    nn.init.normal_(made.bias, 0.0, 0.2)
    return made


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
    def forward(self, x, memory, causal):
        def split(t):
            return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(memory).chunk(2, dim=-1)
        y = F.scaled_dot_product_attention(split(self.q(x)), split(k), split(v), is_causal=causal)
        return self.out(y.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.own, self.cross = Attention(width, heads), Attention(width, heads)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norms = nn.ModuleList([norm(width) for _ in range(3)])
    def forward(self, x, memory):
        x = self.norms[0](x + self.own(x, x, True))
        x = self.norms[1](x + self.cross(x, memory, False))
        return self.norms[2](x + self.down(F.relu(self.up(x))))


def get_inputs():
    return [torch.randn(BATCH, TARGET, WIDTH), torch.randn(BATCH, SOURCE, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, HIDDEN]
