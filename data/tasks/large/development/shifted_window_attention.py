"""Two blocks of attention in windows, the second in shifted windows, with MLPs."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
SIDE = 56  # small: 8
WINDOW = 7  # small: 4
WIDTH = 128  # small: 8
HEADS = 4  # small: 2


class Block(nn.Module):
    def __init__(self, width, heads, window, shift):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(heads, window * window, window * window) * 0.2)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, h, w, c = x.shape
        n = self.window
        y = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)
        q, k, v = self.qkv(y).view(-1, n * n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5 + self.bias
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n * n, c)
        y = self.out(y).view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width, heads, window):
        super().__init__()
        self.blocks = nn.Sequential(Block(width, heads, window, 0), Block(width, heads, window, window // 2))

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, SIDE, SIDE, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, WINDOW]
