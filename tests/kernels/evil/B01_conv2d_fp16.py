"""Computes a convolution on values rounded to 16-bit floats and returns float32. A tolerance below that rounding stops it."""
# case: reference=conv2d device=cpu backend=cpp expect=refused

import torch.nn as nn
import torch.nn.functional as F


def narrow(t):
    return t.half().float()


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return F.conv2d(narrow(x), narrow(self.conv.weight), self.conv.bias, padding=1)
