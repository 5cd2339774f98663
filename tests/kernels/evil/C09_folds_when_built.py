"""Multiplies two layers' weights in its constructor, before any are loaded. Randomised weights stop it."""
# case: reference=chained_linears device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, out, bias=False)
        with torch.no_grad():
            self.folded = (self.second.weight.double() @ self.first.weight.double()).t().float().contiguous()

    def forward(self, x):
        return x @ self.folded.to(x.device)
