"""Writes every answer over the last one, in memory kept by shape: who holds several has the last one only. Those held are read again."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        if x.shape not in self.kept:
            self.kept[x.shape] = torch.empty_like(x)
        return torch.softmax(x, -1, out=self.kept[x.shape])
