"""Experts: linear, softmax, unsqueeze, mul, sum and 1 more."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 1  # small: 1
TOKENS = 49  # small: 5
FEATURES = 1536  # small: 16
EXPERTS = 16  # small: 4


class Model(nn.Module):
    def __init__(self, features, experts):
        super().__init__()
        self.linear = nn.Linear(features, experts)

    def forward(self, x, outputs):
        out = torch.softmax(self.linear(x), dim=-1)
        hidden = out[..., None]
        return F.relu(torch.sum(hidden * outputs, dim=2)).square()


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES) + 0.5, torch.randn(BATCH, TOKENS, EXPERTS, FEATURES) * 2.0]


def get_init_inputs():
    return [FEATURES, EXPERTS]
