"""One NaN among a million right values, so that a maximum of errors is NaN and compares false. Comparing each element stops it."""
# case: reference=affine device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.relu(x) * 2 + 1
        y.view(-1)[y.numel() // 2] = torch.nan
        return y
