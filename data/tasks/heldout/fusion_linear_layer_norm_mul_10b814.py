"""Linear, layer norm, mul, abs, shift and 7 more."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 256  # small: 7
FEATURES = 2238  # small: 10
FEATURES2 = 32  # small: 24


class Model(nn.Module):
    def __init__(self, features, features2, alpha):
        super().__init__()
        self.alpha = alpha
        self.linear = nn.Linear(features, features2)
        self.norm = nn.LayerNorm(features2, eps=1e-3)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.register_buffer("beta", torch.randn(features2) * 0.25)

    def forward(self, inputs, scale, mask):
        t = self.linear(inputs)
        tmp = torch.mul(self.norm(t), scale)
        mid = torch.abs(tmp) + self.alpha
        part = (1.0 / mid).sigmoid()
        t2 = F.hardsigmoid((tmp * part).masked_fill(~mask, 0.0))
        return torch.mul(t, t2) + self.beta


def get_inputs():
    return [torch.randn(BATCH, FEATURES), torch.randn(BATCH, FEATURES2) + 0.5, torch.rand(BATCH, FEATURES2) > 0.5]


def get_init_inputs():
    return [FEATURES, FEATURES2, 0.1]
