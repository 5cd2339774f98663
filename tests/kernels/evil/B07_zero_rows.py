"""Divides rows by their length with no floor under it: NaN for rows of zeros. Zero rows stop it."""
# case: reference=l2_normalize device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / x.square().sum(1, keepdim=True).sqrt_()
