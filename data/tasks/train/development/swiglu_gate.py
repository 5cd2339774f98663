"""SwiGLU: one half of a projection gates the other."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 16384  # cpu: 2048  # small: 6
WIDTH = 2048  # cpu: 1024  # small: 16


class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [torch.randn(TOKENS, 2 * WIDTH)]


def get_init_inputs():
    return []
