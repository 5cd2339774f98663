"""SwiGLU feed-forward entry: two products of the same tokens, one gates the other."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 4096  # small: 9
WIDTH = 768  # small: 20
HIDDEN = 2048  # small: 28


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return F.silu(self.gate(x)) * self.up(x)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
