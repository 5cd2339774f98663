"""Works for its first ten calls and returns zeros afterwards. Checking every timed output stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, a, b):
        self.calls += 1
        if self.calls <= 10:
            return a @ b
        return torch.zeros(a.shape[0], b.shape[1], device=a.device)
