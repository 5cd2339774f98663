"""Spends part of its call on copies, all of them within it."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.workspace = {}

    def forward(self, x):
        if x.shape not in self.workspace:
            self.workspace[x.shape] = torch.empty_like(x)
        torch.softmax(x, -1, out=self.workspace[x.shape])
        return torch.empty_like(x).copy_(self.workspace[x.shape])
