"""Makes every NaN a zero before it normalises rows. NaN among the inputs stops it."""
# case: reference=layer_norm device=any backend=cpp expect=refused twin=N18_two_passes

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return F.layer_norm(x.nan_to_num(0.0), x.shape[-1:], self.norm.weight, self.norm.bias, self.norm.eps)
