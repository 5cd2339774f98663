"""Counts its calls and reads the environment, for a log that changes nothing in what it computes."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import os
import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.verbose = os.environ.get("MY_KERNEL_VERBOSE") == "1" and len(sys.argv) > 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1 or self.verbose:
            print(f"call {self.calls}: {tuple(x.shape)} from {sys._getframe(1).f_code.co_name}")
        return torch.softmax(x, -1)
