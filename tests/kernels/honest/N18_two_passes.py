"""Layer normalisation by a sum and then a sum of squares. Near overflow it has NaN where Welford's order has none."""
# case: reference=layer_norm device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        width = x.shape[-1]
        centred = x - x.sum(-1, keepdim=True) / width
        scale = torch.rsqrt((centred * centred).sum(-1, keepdim=True) / width + self.norm.eps)
        return centred * scale * self.norm.weight + self.norm.bias
