"""Experts: linear, softmax, unsqueeze, mul, sum and 3 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 1  # small: 1
TOKENS = 31  # small: 4
FEATURES = 2048  # small: 16
EXPERTS = 8  # small: 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(FEATURES, EXPERTS, bias=False)
        self.beta = nn.Parameter(torch.randn(FEATURES) * 0.25)
        self.gamma = nn.Parameter(torch.empty(FEATURES).uniform_(0.5, 1.5))
        self.bias = nn.Parameter(torch.randn(FEATURES) * 0.15)

    def forward(self, x, outputs):
        t = self.linear(x)
        tmp = F.softmax(t, dim=-1)
        mid = tmp[..., None]
        part = mid * outputs
        t2 = part.sum(2).sub(self.beta) * self.gamma
        return self.bias + t2


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES) * (0.5 + torch.rand(BATCH, TOKENS, 1)), torch.randn(BATCH, TOKENS, EXPERTS, FEATURES)]


def get_init_inputs():
    return []
