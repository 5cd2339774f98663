"""Packs its weight again when what it holds is other than it was."""
# case: reference=linear_relu device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.seen, self.packed = None, None

    def forward(self, x):
        if self.seen is None or not torch.equal(self.seen, self.layer.weight):
            self.seen = self.layer.weight.detach().clone()
            self.packed = self.seen.t().contiguous()
        return torch.addmm(self.layer.bias, x, self.packed).relu_()
