"""Rounds weights to 8-bit floats with one scale. A tolerance below that rounding stops it."""
# case: reference=linear device=any backend=cpp expect=refused

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)

    def forward(self, x):
        scale = self.layer.weight.abs().amax() / 448
        packed = (self.layer.weight / scale).to(torch.float8_e4m3fn)
        return F.linear(x, packed.float() * scale, self.layer.bias)
