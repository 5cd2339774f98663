"""Looks at a sample of the input it was called with to choose between two ways that are right for every input."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if float(x[0].abs().max()) < 1e4:
            return torch.softmax(x, -1)
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
