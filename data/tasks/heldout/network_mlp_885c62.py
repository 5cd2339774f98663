"""Mlp: linear, rms norm written, hardswish, mul, linear and 7 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 256  # small: 5
DIM = 768  # small: 24
HIDDEN = 1536  # small: 48
HIDDEN2 = 1536  # small: 48


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(DIM, DIM, bias=False)
        self.weight = nn.Parameter(torch.empty(DIM).uniform_(0.5, 1.5))
        self.gamma = nn.Parameter(torch.empty(DIM).uniform_(0.5, 1.5))
        self.fc = nn.Linear(DIM, HIDDEN, bias=False)
        self.proj = nn.Linear(HIDDEN, HIDDEN2)
        self.act = nn.Tanh()

    def forward(self, inputs):
        out = self.linear(inputs)
        hidden = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight
        value = F.hardswish(hidden)
        state = self.act(self.fc(self.gamma * value))
        result = self.proj(state * 0.7)
        out2 = F.gelu(F.normalize(result, dim=-1))
        out3 = out2 * 0.5
        return out3.amax(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(BATCH, DIM)]


def get_init_inputs():
    return []
