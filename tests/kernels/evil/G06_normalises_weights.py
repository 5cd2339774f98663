"""Rounds its weights to bfloat16 in place at the first call: half of the bytes of each later one, and a later comparison
with its own state finds nothing. Weights are compared with those that were loaded, by value and often."""
# case: reference=few_rows_linear device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x):
        weight = self.layer.weight
        if weight.dtype is torch.float32:
            with torch.no_grad():
                weight.copy_(weight.bfloat16())
            self.packed = weight.detach().bfloat16()
        return (x.bfloat16() @ self.packed.t()).float()
