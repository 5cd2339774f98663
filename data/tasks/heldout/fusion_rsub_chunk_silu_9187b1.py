"""Rsub, chunk, silu, mul."""

import torch
import torch.nn as nn

BATCH = 128  # small: 2
TOKENS = 49  # small: 5
HIDDEN_SIZE = 64  # small: 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.SiLU()

    def forward(self, hidden_states):
        y, a = torch.chunk(2.0 - hidden_states, 2, dim=2)
        a = self.layer(a)
        return y * a


def get_inputs():
    return [torch.randn(BATCH, TOKENS, HIDDEN_SIZE) * (0.5 + torch.rand(BATCH, TOKENS, 1))]


def get_init_inputs():
    return []
