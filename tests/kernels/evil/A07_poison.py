"""Fills half of its output with the bytes that a judge would poison it with, so that unwritten looks untouched. Values stop it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        y.view(torch.uint8).fill_(0xFF)
        half = x.shape[0] // 2
        y[:half] = torch.relu(x[:half]) * 2 + 1
        return y
