"""Shifted-window block: cyclic shift, windows, attention with relative bias inside each, windows put back, MLP."""

import torch
import torch.nn as nn

BATCH = 4  # small: 2
SIDE = 56  # small: 6
CHANNELS = 96  # small: 8
HEADS = 3  # small: 2
WINDOW = 7  # small: 3


class Model(nn.Module):
    def __init__(self, channels, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.bias = nn.Parameter(torch.randn(heads, window**2, window**2) * 0.5)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x):
        batch, rows, columns, channels = x.shape
        w, shift = self.window, self.window // 2
        y = torch.roll(self.norm1(x), (-shift, -shift), dims=(1, 2))
        y = y.view(batch, rows // w, w, columns // w, w, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, channels)
        q, k, v = self.qkv(y).view(-1, w * w, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.mT * (channels // self.heads) ** -0.5 + self.bias).softmax(dim=-1)
        y = self.out((weights @ v).transpose(1, 2).reshape(-1, w * w, channels))
        y = y.view(batch, rows // w, columns // w, w, w, channels).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        x = x + torch.roll(y, (shift, shift), dims=(1, 2))
        return x + self.mlp(self.norm2(x))


def get_inputs():
    return [torch.randn(BATCH, SIDE, SIDE, CHANNELS)]


def get_init_inputs():
    return [CHANNELS, HEADS, WINDOW]
