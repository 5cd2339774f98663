"""Refolds weights when a parameter's version counter has moved, which load_state_dict moves."""
# case: reference=chained_linears device=any backend=cpp expect=ok

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, out, bias=False)
        self.key, self.folded = None, None

    def forward(self, x):
        weights = (self.first.weight, self.second.weight)
        key = [(weight.data_ptr(), weight._version) for weight in weights]
        if key != self.key:
            self.folded = (weights[1].double() @ weights[0].double()).t().float().contiguous()
            self.key = key
        return x @ self.folded
