"""Computes 99 % of the rows; the rest is whatever the memory held. Every element is compared, so it fails."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.empty(a.shape[0], b.shape[1], device=a.device)
        rows = max(1, a.shape[0] * 99 // 100)
        torch.matmul(a[:rows], b, out=y[:rows])
        return y
