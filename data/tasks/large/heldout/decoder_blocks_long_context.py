"""Two decoder blocks over two thousand tokens: attention written out with a causal mask from a buffer, MLP with tanh GELU."""

import torch
import torch.nn as nn

BATCH = 2  # small: 2
TOKENS = 2000  # small: 9
WIDTH = 768  # small: 16
HEADS = 12  # small: 4
BLOCKS = 2  # small: 2


class Block(nn.Module):
    def __init__(self, tokens, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("seen", torch.tril(torch.ones(tokens, tokens)).view(1, 1, tokens, tokens))
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(c, dim=2))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        scores = scores.masked_fill(self.seen[:, :, :t, :t] == 0, float("-inf"))
        x = x + self.out((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, tokens, width, heads, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(tokens, width, heads) for _ in range(blocks)))
    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [TOKENS, WIDTH, HEADS, BLOCKS]
