"""What one unit grows to at each of half a million steps: the running product of one plus the rates."""

import torch
import torch.nn as nn

ROWS = 768  # small: 3
STEPS = 524288  # small: 600


class Model(nn.Module):
    def forward(self, rates):
        return torch.cumprod(1 + rates, dim=1)


def get_inputs():
    return [torch.randn(ROWS, STEPS) * 8e-4]


def get_init_inputs():
    return []
