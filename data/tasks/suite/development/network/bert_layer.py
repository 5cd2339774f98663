"""A post-norm encoder layer with attention written out, a padding mask and exact GELU."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
TOKENS = 128  # small: 9
WIDTH = 768  # small: 16
HEADS = 12  # small: 4


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        scores = scores + (1.0 - mask[:, None, None, :]) * -1e4
        mixed = torch.matmul(torch.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).flatten(2)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))


def get_inputs():
    lengths = torch.randint(TOKENS // 2, TOKENS + 1, (BATCH, 1))
    return [torch.randn(BATCH, TOKENS, WIDTH), (torch.arange(TOKENS) < lengths).float()]


def get_init_inputs():
    return [WIDTH, HEADS]
