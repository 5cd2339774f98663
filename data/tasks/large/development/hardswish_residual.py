"""A scaled hard swish added to a residual, 750 million elements each."""

import torch
import torch.nn as nn

ROWS = 24576  # small: 8
WIDTH = 30720  # small: 80


class Model(nn.Module):
    def forward(self, x, y):
        return nn.functional.hardswish(x) * 0.7 + y


def get_inputs():
    return [torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []
