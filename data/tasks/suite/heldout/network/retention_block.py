"""Retention of a sequence model: products weighted by a decay for each head, group norm of the heads, gate, feed-forward."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # small: 2
TOKENS = 320  # small: 8
WIDTH = 512  # small: 16
HEADS = 8  # small: 4
HIDDEN = 1024  # small: 18


class Model(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
        self.qkv, self.gate = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.head_norm = nn.GroupNorm(heads, width)
        nn.init.normal_(self.head_norm.weight, 1.0, 0.2)
        nn.init.normal_(self.head_norm.bias, 0.0, 0.2)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.register_buffer("log_decay", torch.log(1 - 2.0 ** (-2 - torch.arange(heads) * 0.7)))
    def forward(self, x):
        batch, tokens, width = x.shape
        y = self.norm1(x)
        q, k, v = self.qkv(y).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        place = torch.arange(tokens, device=x.device)
        past = (place[:, None] - place).to(x.dtype)
        decay = torch.where(past >= 0, torch.exp(self.log_decay[:, None, None] * past), torch.zeros((), device=x.device))
        kept = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 * decay) @ v
        kept = self.head_norm(kept.transpose(1, 2).reshape(batch * tokens, width)).view(batch, tokens, width)
        x = x + self.out(kept * F.silu(self.gate(y)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, HIDDEN]
