"""Product, clamp min, where leaky, layer norm, tanh and 6 more."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 1  # small: 1
TOKENS = 50  # small: 7
WIDTH = 1152  # small: 24
KEYS = 128  # small: 24


class Model(nn.Module):
    def __init__(self, keys):
        super().__init__()
        self.norm = nn.LayerNorm(keys, eps=1e-3)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.gamma = nn.Parameter(torch.empty(keys).uniform_(0.5, 1.5))
        self.layer = nn.Hardswish()

    def forward(self, x, y):
        t = torch.clamp(x @ y, min=-30.64)
        tmp = self.norm(torch.where(t >= 0, t, t * 0.1))
        mid = torch.clamp(self.layer(tmp.tanh()), -0.26, 0.52)
        part = F.silu((torch.mul(mid, 0.1) * self.gamma) * mid)
        return part, tmp


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH), torch.randn(BATCH, WIDTH, KEYS) * (0.5 + torch.rand(BATCH, WIDTH, 1))]


def get_init_inputs():
    return [KEYS]
