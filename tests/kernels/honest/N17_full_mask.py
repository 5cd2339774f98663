"""Leaves the mask out where all of it is true, and uses it elsewhere."""
# case: reference=masked_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        if bool(mask.all()):
            return torch.softmax(x, -1)
        return torch.softmax(torch.where(mask, x, float("-inf")), -1)
