"""GELU, then a scale and a shift by column: elementwise, with weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
        self.shift = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return F.gelu(x) * self.scale + self.shift


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return [1024]
