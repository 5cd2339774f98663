"""Feed forward: layer norm, linear, tanh, shift, linear and 1 more."""

import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH = 12  # small: 2
SEQ = 16  # small: 5
FEATURES = 640  # small: 40
INNER = 2560  # small: 160


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.norm = nn.LayerNorm(FEATURES, eps=1e-3)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.linear = nn.Linear(FEATURES, INNER)
        self.fc = nn.Linear(INNER, FEATURES)
        self.bias = nn.Parameter(torch.randn(FEATURES) * 0.25)

    def forward(self, x):
        x = self.norm(x)
        t = F.tanh(self.linear(x))
        t = t + self.scale
        t = self.fc(t)
        return t.add_(self.bias)


def get_inputs():
    return [torch.randn(BATCH, SEQ, FEATURES) + 0.25]


def get_init_inputs():
    return [1.0]
