"""Returns a view with a stride of zero where the reference does."""
# case: reference=expanded_mean device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (torch.exp(x).sum(1, keepdim=True) / x.shape[1]).expand_as(x)
