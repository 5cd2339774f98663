"""Feed forward: rms norm, linear, chunk, hardsigmoid, mul and 2 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 23  # small: 2
TOKENS = 196  # small: 4
WIDTH = 64  # small: 24


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-5)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        self.weight = nn.Parameter(torch.empty(2 * width, width).uniform_(-0.125, 0.125))
        self.bias = nn.Parameter(torch.rand(2 * width) * 0.25 - 0.125)
        self.linear = nn.Linear((2 * width) // 2, width)

    def forward(self, tokens):
        features, residual = F.linear(self.norm(tokens), self.weight, self.bias).chunk(2, dim=2)
        residual = F.hardsigmoid(residual)
        update = self.linear(features * residual)
        tokens = tokens.add(update)
        return tokens


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH) * (0.5 + torch.rand(BATCH, TOKENS, 1))]


def get_init_inputs():
    return [WIDTH]
