"""Product, abs, scale, layer norm, leaky relu."""

import torch
from torch import nn

BATCH = 3  # small: 3
SEQ = 49  # small: 4
WIDTH = 2560  # small: 24
KEYS = 48  # small: 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(KEYS, elementwise_affine=False)
        self.layer = nn.LeakyReLU(0.05)

    def forward(self, features, y):
        features = features @ y
        features = abs(features)
        return self.layer(self.norm(features * 0.7))


def get_inputs():
    return [torch.randn(BATCH, SEQ, WIDTH) + 0.25, torch.randn(BATCH, WIDTH, KEYS) * (0.5 + torch.rand(BATCH, WIDTH, 1))]


def get_init_inputs():
    return []
