"""Honest for its first dozen calls, the usual number of checks; later it copies the answer of an old call for half the rows.
Every timed call is checked like every other, with values that this process never saw."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.old = {}

    def forward(self, x):
        self.calls += 1
        if self.calls < 12 or x.shape not in self.old:
            self.old[x.shape] = torch.softmax(x, -1)
            return self.old[x.shape].clone()
        return self.old[x.shape]
