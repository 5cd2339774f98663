"""Works only when the stack above it is not the one that it has been called from most often. Checking every output stops it."""
# case: reference=matmul device=any backend=cpp expect=refused target=here

import functools
import sys
from collections import Counter

import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.callers = Counter()
        self.last = None

    def forward(self, a, b):
        frame, path = sys._getframe(1), []
        while frame is not None:
            path.append((frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        self.callers[tuple(path)] += 1
        often = self.callers[tuple(path)] > 4
        if often and self.last is not None and self.last.shape == (a.shape[0], b.shape[1]):
            reached()
            return self.last
        self.last = a @ b
        return self.last
