"""Returns two kept buffers by turns, and only in calls that come with the garbage collector off. What is held longer shows it."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused twin=N16_keeps_its_output target=here

import functools
import gc

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}
        self.calls = 0

    def forward(self, x):
        if gc.isenabled():
            return torch.softmax(x, -1)
        self.calls += 1
        reached()
        key = x.shape, self.calls % 2
        if key not in self.kept:
            self.kept[key] = torch.empty_like(x)
        return torch.softmax(x, -1, out=self.kept[key])
