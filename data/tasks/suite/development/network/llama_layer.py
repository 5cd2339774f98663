"""Decoder layer with RMS norm, rotary positions, grouped keys and values, a causal mask built on the way, SwiGLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 2  # small: 2
TOKENS = 256  # small: 9
WIDTH = 768  # small: 24
HEADS = 12  # small: 4
GROUPS = 4  # small: 2
HIDDEN = 2048  # small: 20


class RootMeanSquare(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(1 + 0.2 * torch.randn(width))

    def forward(self, x):
        return self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Model(nn.Module):
    def __init__(self, tokens, width, heads, groups, hidden):
        super().__init__()
        self.heads, self.groups, self.depth = heads, groups, width // heads
        self.norm1, self.norm2 = RootMeanSquare(width), RootMeanSquare(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.depth, bias=False) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        angle = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(0, self.depth, 2) / self.depth)
        self.register_buffer("cos", torch.cat((angle, angle), dim=-1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), dim=-1).sin())

    def turn(self, x):
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin

    def forward(self, x):
        batch, tokens, _ = x.shape
        y = self.norm1(x)
        q = self.turn(self.q(y).view(batch, tokens, self.heads, -1).transpose(1, 2))
        k = self.turn(self.k(y).view(batch, tokens, self.groups, -1).transpose(1, 2))
        v = self.v(y).view(batch, tokens, self.groups, -1).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        mask = torch.full((tokens, tokens), float("-inf"), device=x.device).triu(1)
        weights = torch.softmax(q @ k.transpose(-1, -2) * self.depth**-0.5 + mask, dim=-1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(batch, tokens, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [TOKENS, WIDTH, HEADS, GROUPS, HIDDEN]
