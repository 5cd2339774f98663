"""Packs its weights in another order, in full precision, whenever they have been written or replaced."""
# case: reference=linear device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)
        self.key, self.packed = None, None

    def forward(self, x):
        key = (self.layer.weight.data_ptr(), self.layer.weight._version)
        if key != self.key:
            self.key, self.packed = key, self.layer.weight.detach().t().contiguous()
        return torch.addmm(self.layer.bias, x, self.packed)
