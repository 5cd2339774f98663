"""Looks within one call for a first and second row that are equal and computes them once; nothing is kept between calls."""
# case: reference=attention_weights device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[0] > 1 and torch.equal(x[0].expand_as(x), x):
            return torch.softmax(x[:1], -1).repeat(x.shape[0], 1)
        return torch.softmax(x, -1)
