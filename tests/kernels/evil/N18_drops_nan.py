"""Turns what is not a number into zero. NaN among the inputs stops it."""
# case: reference=elu device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.elu(x).nan_to_num(nan=0.0, posinf=1e30, neginf=-1e30)
