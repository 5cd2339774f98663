"""Refolds weights only when their address changes, which load_state_dict never does. Weights changed that way stop it."""
# case: reference=chained_linears device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, out, bias=False)
        self.key, self.folded = None, None

    def forward(self, x):
        key = (self.first.weight.data_ptr(), self.second.weight.data_ptr())
        if key != self.key:
            self.folded = (self.second.weight.double() @ self.first.weight.double()).t().float().contiguous()
            self.key = key
        return x @ self.folded
