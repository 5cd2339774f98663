"""Decoder block: RMS norms, causal attention with rotary embedding, SwiGLU MLP, residuals."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # cpu: 1  # small: 2
LENGTH = 1024  # cpu: 128  # small: 5
HEADS = 16  # cpu: 4  # small: 2
HEAD = 64  # cpu: 64  # small: 8


WIDTH = HEADS * HEAD
HIDDEN = 8 * WIDTH // 3


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.RMSNorm(WIDTH, eps=1e-6)
        self.after = nn.RMSNorm(WIDTH, eps=1e-6)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        nn.init.normal_(self.before.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.after.weight, mean=1.0, std=0.2)
        rates = 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.arange(LENGTH)[:, None] * rates[None, :]
        self.register_buffer("cos", torch.cat((angles, angles), dim=-1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), dim=-1).sin())

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        q, k = rotated(qkv[0], self.cos, self.sin), rotated(qkv[1], self.cos, self.sin)
        y = F.scaled_dot_product_attention(q, k, qkv[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        gate, value = self.up(self.after(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * value)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return []
