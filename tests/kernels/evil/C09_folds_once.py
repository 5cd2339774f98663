"""Multiplies two layers' weights at its first call and never again. Weights changed through load_state_dict stop it."""
# case: reference=chained_linears device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, out, bias=False)
        self.folded = None

    def forward(self, x):
        if self.folded is None:
            self.folded = (self.second.weight.double() @ self.first.weight.double()).t().float().contiguous()
        return x @ self.folded
