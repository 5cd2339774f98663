"""Glu, chunk, silu, mul, abs and 2 more."""

import torch
import torch.nn as nn

BATCH = 6  # small: 2
CHANNELS = 16  # small: 16
LENGTH = 16384  # small: 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.activation = nn.GLU(dim=1)
        self.layer = nn.SiLU()

    def forward(self, x):
        h = self.activation(x)
        z, u = torch.split(h, h.size(1) // 2, 1)
        v = self.layer(u)
        w = z.mul(v)
        r = abs(w)
        s = 1.0 + r
        h2 = torch.log(s)
        return h2


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH) + 1.0]


def get_init_inputs():
    return []
