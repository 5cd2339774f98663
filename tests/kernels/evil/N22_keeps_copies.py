"""Keeps a copy of a part of every input. Memory that grows with every call stops it."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn

kept = []


class ModelNew(nn.Module):
    def forward(self, x):
        kept.append(x[: len(x) // 2].clone())
        return torch.softmax(x, -1)
