"""Computes a convolution on values rounded to TF32 and returns float32. A tolerance below that rounding stops it."""
# case: reference=conv2d device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn
import torch.nn.functional as F


def narrow(t):
    """Ten bits of mantissa, to the nearest, as tensor cores read a float32."""
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return F.conv2d(narrow(x), narrow(self.conv.weight), self.conv.bias, padding=1)
