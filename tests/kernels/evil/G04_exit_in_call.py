"""Raises SystemExit(0) in the middle of a later call. Each call needs its own output."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 3:
            sys.exit(0)
        return torch.softmax(x, -1)
