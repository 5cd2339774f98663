"""Softshrink, scale, softmax, normalize, smooth l1 loss."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 2  # small: 2
HEADS = 4  # small: 2
TOKENS = 197  # small: 4
DEPTH = 32  # small: 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.criterion = nn.SmoothL1Loss(reduction='none', beta=1.5)
        self.layer = nn.Softshrink(0.3)

    def forward(self, hidden_states, target):
        y = self.layer(hidden_states)
        a = self.criterion(F.normalize(y.mul(3.0).softmax(-1), dim=-1), target)
        return a


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, DEPTH) + 0.25, torch.randn(BATCH, HEADS, TOKENS, DEPTH) * (0.5 + torch.rand(BATCH, HEADS, TOKENS, 1))]


def get_init_inputs():
    return []
