"""Keeps every answer that it ever gave. Memory that grows with every call stops it."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn

kept = []


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        kept.append(y)
        return y
