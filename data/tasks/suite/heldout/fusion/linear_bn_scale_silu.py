"""Linear, batch norm with running statistics, a learned scale, SiLU, division by a constant."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4096  # small: 6
WIDTH = 1000  # small: 14
OUT = 1544  # small: 11


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)
        self.norm = nn.BatchNorm1d(out)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)
        self.norm.running_mean.normal_(0.0, 0.3)
        self.norm.running_var.uniform_(0.1, 0.6)
        self.scale = nn.Parameter(torch.rand(1) + 0.5)
        self.eval()
    def forward(self, x):
        return F.silu(self.norm(self.linear(x)) * self.scale) / 1.7


def get_inputs():
    return [torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH, OUT]
