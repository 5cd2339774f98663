"""Mean, add, leaky relu, gelu tanh, leaky relu and 3 more."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 32  # small: 3
CHANNELS = 8  # small: 8
SIDE = 80  # small: 9


class Model(nn.Module):
    def __init__(self, side, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(channels, 1).uniform_(-0.5, 0.5))
        self.weight = nn.Parameter(torch.empty(channels, 1).uniform_(0.5, 1.5))
        self.norm = nn.LayerNorm(side)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.block = nn.Sequential(nn.GELU('tanh'), nn.LeakyReLU(0.3))

    def forward(self, hidden_states):
        hidden_states = hidden_states.mean(dim=-1)
        hidden_states = hidden_states + self.bias
        hidden_states = F.leaky_relu(hidden_states, 0.1)
        features = self.block(hidden_states)
        features = features * self.weight
        features = self.norm(features)
        features = torch.div(features, 2.5)
        return features


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 2.0]


def get_init_inputs():
    return [SIDE, CHANNELS]
