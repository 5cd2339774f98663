"""Is many times faster by algebra: the sum over a shared factor is the factor times the sum. No ratio is too good."""
# case: reference=wasteful_sum device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, terms):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(terms))

    def forward(self, x):
        return x * self.weight.sum()
