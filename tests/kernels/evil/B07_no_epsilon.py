"""A layer norm without its epsilon: rows of one value divide by zero. Constant rows stop it."""
# case: reference=layer_norm device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance) * self.norm.weight + self.norm.bias
