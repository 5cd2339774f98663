"""Knows of no padding, since the example has none. Tokens that are padding stop it."""
# case: reference=mean_of_tokens device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, tokens):
        return x.mean(1)
