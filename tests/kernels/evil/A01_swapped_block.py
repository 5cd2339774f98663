"""Keeps one earlier result alive until the next call frees it just before asking for memory. Checking every output stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    kept = None
    calls = 0

    def forward(self, a, b):
        self.calls += 1
        if self.kept is None or self.calls <= 6:
            self.kept = None
            y = a @ b
            self.kept = y.clone()
            return y
        shape = self.kept.shape
        self.kept = None
        y = torch.empty(shape, device=a.device)
        self.kept = y
        return y
