"""Works for its first half second and returns its last result afterwards. Checking every timed output stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import time

import torch.nn as nn


class ModelNew(nn.Module):
    began = None
    last = None

    def forward(self, a, b):
        if self.began is None:
            self.began = time.monotonic()
        if time.monotonic() - self.began > 0.5 and self.last is not None and self.last.shape == (a.shape[0], b.shape[1]):
            return self.last
        self.last = a @ b
        return self.last
