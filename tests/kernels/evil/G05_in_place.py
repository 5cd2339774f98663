"""Computes in its input's memory and returns it, which saves the allocation that the reference has to make.
Inputs must stay as they were, and an output may not be an input."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1, out=x)
