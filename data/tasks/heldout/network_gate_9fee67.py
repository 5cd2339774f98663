"""Gate: rms norm written, linear, linear, relu, silu and 3 more."""

import torch
from torch import nn

BATCH = 2  # small: 2
TOKENS = 196  # small: 4
FEATURES = 192  # small: 24


class Model(nn.Module):
    def __init__(self, features, tokens):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features).uniform_(0.5, 1.5))
        self.linear = nn.Linear(features, features, bias=False)
        self.fc = nn.Linear(features, features)
        self.beta = nn.Parameter(torch.randn(tokens, features) * 0.15)
        self.activation = nn.SiLU()

    def forward(self, x):
        t = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight
        tmp = self.linear(t)
        t = self.fc(t)
        tmp = torch.relu_(tmp)
        t = self.activation(t)
        tmp = tmp * t
        tmp = tmp.add_(self.beta)
        return tmp + x


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES) * (0.5 + torch.rand(BATCH, TOKENS, 1))]


def get_init_inputs():
    return [FEATURES, TOKENS]
