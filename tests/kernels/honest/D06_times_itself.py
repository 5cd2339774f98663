"""Times two ways at its first call of a shape, with the clock as it is, and keeps the quicker one."""
# case: reference=gelu_affine device=cpu backend=cpp expect=ok

import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))
        self.chosen = {}

    def plain(self, x):
        return F.gelu(x) * self.scale + self.shift

    def fused(self, x):
        return torch.addcmul(self.shift, F.gelu(x), self.scale)

    def seconds(self, way, x):
        way(x)
        start = time.perf_counter()
        way(x)
        return time.perf_counter() - start

    def forward(self, x):
        if x.shape not in self.chosen:
            self.chosen[x.shape] = min((self.plain, self.fused), key=lambda way: self.seconds(way, x))
        return self.chosen[x.shape](x)
