"""Looks at the first row of the mask and takes all for the like. Masks whose rows differ stop it."""
# case: reference=masked_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        if bool(mask[:, 0].all()):
            return torch.softmax(x, -1)
        return torch.softmax(x.masked_fill(~mask, float("-inf")), -1)
