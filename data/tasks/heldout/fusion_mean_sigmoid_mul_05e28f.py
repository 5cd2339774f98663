"""Mean, sigmoid, mul, add, add and 6 more."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 8  # small: 2
CHANNELS = 3  # small: 3
HEIGHT = 96  # small: 7
WIDTH = 96  # small: 11


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.rand(1, CHANNELS, 1, 1) * 0.6 - 0.3)

    def forward(self, x):
        y = x.mean(dim=-1, keepdim=True)
        a = torch.sigmoid(y)
        b = a * x
        c = torch.add(b, x)
        d = c.add(x)
        e = torch.cos(d)
        y2 = e + self.bias
        y3 = torch.pow(y2, 2)
        y4 = y3 + 0.5
        y5 = torch.reciprocal(y4)
        return F.softshrink(y5, 0.5)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) * (0.5 + torch.rand(BATCH, CHANNELS, HEIGHT, 1))]


def get_init_inputs():
    return []
