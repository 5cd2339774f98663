"""Packs again when its bias has been written, and takes the weight for written with it. Weights changed one by one stop it."""
# case: reference=linear device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)
        self.key, self.packed = None, None

    def forward(self, x):
        key = id(self.layer.bias)
        if key != self.key:
            self.key, self.packed = key, self.layer.weight.detach().t().contiguous()
        return torch.addmm(self.layer.bias, x, self.packed)
