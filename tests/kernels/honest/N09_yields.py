"""Gives up its turn on the processor now and then, and reads the clock without changing it."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import os
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = time.monotonic_ns()

    def forward(self, x):
        os.sched_yield()
        self.last = time.monotonic_ns()
        return torch.softmax(x, -1)
