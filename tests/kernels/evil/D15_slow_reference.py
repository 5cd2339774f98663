"""Finds the reference's module among its process's objects and makes its forward sleep first.
The reference is an object of a process that the candidate never enters."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered target=elsewhere

import gc
import time

import torch
import torch.nn as nn


def slow_down(module):
    forward = module.forward

    def slowly(*args, **kwargs):
        time.sleep(0.01)
        return forward(*args, **kwargs)

    module.__dict__["forward"] = slowly


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3:
            for one in gc.get_objects():
                if isinstance(one, nn.Module) and one is not self:
                    slow_down(one)
        return torch.softmax(x, -1)
