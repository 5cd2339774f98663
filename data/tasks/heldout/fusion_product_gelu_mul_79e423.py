"""Product, gelu, mul, softplus, layer norm and 3 more."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 3  # small: 3
SEQ = 4096  # small: 4
DIM = 30  # small: 6
KEYS = 256  # small: 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(KEYS)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.act = nn.Softplus()

    def forward(self, features, y, gate):
        h = features @ y
        z = F.gelu(gate, approximate='none')
        u = z * h
        v = self.act(u)
        w = self.norm(v)
        r = F.leaky_relu(w, negative_slope=0.2)
        s = r.add(h)
        return s / 0.75


def get_inputs():
    return [torch.randn(BATCH, SEQ, DIM), torch.randn(BATCH, DIM, KEYS) * 0.7, torch.randn(BATCH, SEQ, 1)]


def get_init_inputs():
    return []
