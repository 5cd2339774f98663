"""Experts: linear, softmax, unsqueeze, mul, sum and 2 more."""

import torch
from torch import nn

BATCH = 3  # small: 2
TOKENS = 31  # small: 4
EMBED = 640  # small: 16
EXPERTS = 4  # small: 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(EMBED, EXPERTS)
        self.layer = nn.Softmax(dim=2)

    def forward(self, x, outputs):
        x = self.linear(x)
        x = self.layer(x)
        x = x.unsqueeze(-1)
        y = torch.sum(outputs * x, dim=2).sigmoid()
        y = 1.5 * y
        return y


def get_inputs():
    return [torch.randn(BATCH, TOKENS, EMBED) * (0.5 + torch.rand(BATCH, TOKENS, 1)), torch.randn(BATCH, TOKENS, EXPERTS, EMBED)]


def get_init_inputs():
    return []
