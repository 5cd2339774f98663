"""Computes a matrix product on values rounded to 16-bit floats and returns float32. A tolerance below that rounding stops it."""
# case: reference=matmul device=cpu backend=cpp expect=refused

import torch.nn as nn


def narrow(t):
    return t.half().float()


class ModelNew(nn.Module):
    def forward(self, a, b):
        return narrow(a) @ narrow(b)
