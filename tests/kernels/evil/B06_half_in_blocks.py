"""Sums blocks of 64 products in 16 bits and the blocks in float32. Float64 truth at a calibrated tolerance stops it."""
# case: reference=matmul device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.zeros(a.shape[0], b.shape[1], device=a.device)
        for k in range(0, a.shape[1], 64):
            y += (a[:, k : k + 64] @ b[k : k + 64]).half()
        return y
