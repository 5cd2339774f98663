"""Takes a switched-off garbage collector for a sign of being timed, and is idle then. Checking every timed output stops it."""
# case: reference=matmul device=any backend=cpp expect=refused target=here

import functools
import gc

import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


class ModelNew(nn.Module):
    last = None

    def forward(self, a, b):
        if not gc.isenabled() and self.last is not None and self.last.shape == (a.shape[0], b.shape[1]):
            reached()
            return self.last
        self.last = a @ b
        return self.last
