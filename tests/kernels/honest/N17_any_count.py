"""Sorts, and takes as many as are asked for."""
# case: reference=top_mean device=any backend=cpp expect=ok

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, count):
        return x.sort(-1, descending=True).values[:, :count].mean(-1)
