"""Follows the first load_state_dict and ignores any later one. Weights changed a second time stop it."""
# case: reference=chained_linears device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, out, bias=False)
        self.loads, self.folded = 0, None

    def load_state_dict(self, *args, **kwargs):
        self.loads += 1
        return super().load_state_dict(*args, **kwargs) if self.loads == 1 else ([], [])

    def forward(self, x):
        if self.folded is None and self.loads:
            self.folded = (self.second.weight.double() @ self.first.weight.double()).t().float().contiguous()
        return x @ self.folded if self.folded is not None else self.second(self.first(x))
