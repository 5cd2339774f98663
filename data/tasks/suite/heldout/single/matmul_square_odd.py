"""Product of two square matrices whose side no tile divides."""

import torch
import torch.nn as nn

SIDE = 1901  # small: 19


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)]


def get_init_inputs():
    return []
