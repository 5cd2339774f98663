"""Linear, amax, cos, mul."""

import torch
from torch import nn

N = 512  # small: 3
FEATURES = 3001  # small: 5
HIDDEN = 64  # small: 16


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, features, scale):
        out = self.linear(features).amax(dim=1, keepdim=True)
        out = torch.cos(out)
        out = out * scale
        return out


def get_inputs():
    return [torch.randn(N, FEATURES), torch.randn(N, 1) * (0.5 + torch.rand(N, 1))]


def get_init_inputs():
    return [FEATURES, HIDDEN]
