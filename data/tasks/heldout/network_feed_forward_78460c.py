"""Feed forward: layer norm, linear, glu, linear, shift and 2 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 2048  # small: 5
EMBED = 128  # small: 24
HIDDEN = 256  # small: 48


class Model(nn.Module):
    def __init__(self, embed, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(embed).uniform_(0.5, 1.5))
        self.bias = nn.Parameter(torch.empty(embed).uniform_(-0.5, 0.5))
        self.linear = nn.Linear(embed, 2 * hidden)
        self.fc = nn.Linear((2 * hidden) // 2, embed)
        self.gamma = nn.Parameter(torch.empty(embed).uniform_(0.5, 1.5))
        self.shift = nn.Parameter(torch.empty(embed).uniform_(-0.3, 0.3))
        self.activation = nn.GLU(dim=-1)

    def forward(self, x):
        x = F.layer_norm(x, x.shape[-1:], self.weight, self.bias)
        x = self.linear(x)
        x = self.activation(x)
        x = self.fc(x)
        x = x + 0.5
        x = torch.mul(x, self.gamma)
        x = self.shift + x
        return x


def get_inputs():
    return [torch.randn(BATCH, EMBED) * (0.5 + torch.rand(BATCH, 1))]


def get_init_inputs():
    return [EMBED, HIDDEN]
