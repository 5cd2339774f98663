"""Ignores the mask, which is all true in the example. Masks of every density stop it."""
# case: reference=masked_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return torch.softmax(x, -1)
