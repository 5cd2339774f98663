"""Folds batch normalisation's statistics, whatever they are, into one multiplication and one addition each call."""
# case: reference=batch_norm device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm2d(features).eval()

    def forward(self, x):
        n = self.norm
        scale = n.weight * torch.rsqrt(n.running_var + n.eps)
        shift = n.bias - n.running_mean * scale
        return torch.addcmul(shift[:, None, None], x, scale[:, None, None])
