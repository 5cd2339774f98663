"""Compares a part of its result with a plainer way at its first call, with torch's comparisons as they are."""
# case: reference=gelu_affine device=any backend=cpp expect=ok

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))
        self.checked = False

    def forward(self, x):
        y = torch.addcmul(self.shift, F.gelu(x), self.scale)
        if not self.checked:
            self.checked = True
            row = 0.5 * x[0] * (1 + torch.erf(x[0] * 0.7071067811865476)) * self.scale + self.shift
            if not torch.allclose(y[0], row, rtol=1e-3, atol=1e-3, equal_nan=True):
                print("the two ways differ more than expected")
        return y
