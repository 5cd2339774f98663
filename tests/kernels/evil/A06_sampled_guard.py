"""Looks at one column in a hundred; if each row seems to hold one value throughout, takes that for granted. Rows with one other
element at a place not looked at stop it."""
# case: reference=block_constant device=any backend=cpp expect=refused

import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if bool((x[:, ::100] == x[:, :1]).all()):
            return x[:, 0] + math.log(x.shape[1])
        return torch.logsumexp(x, 1)
