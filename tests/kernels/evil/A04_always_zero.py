"""Writes zeros where every row less its own mean is zero. Right but worth nothing: the problem's health tells."""
# case: reference=max_minus_mean device=any backend=cpp expect=reported

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros((x.shape[0], 1), dtype=x.dtype, device=x.device)
