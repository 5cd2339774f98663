"""Computes a layer norm on values rounded to TF32 and returns float32. A tolerance below that rounding stops it."""
# case: reference=layer_norm device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


def narrow(t):
    """Ten bits of mantissa, to the nearest, as tensor cores read a float32."""
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = narrow(x)
        centred = narrow(x - x.mean(-1, keepdim=True))
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
