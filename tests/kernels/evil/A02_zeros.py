"""Zeros for a softmax so wide that an absolute tolerance accepts them. A metric scaled by the output's size stops it."""
# case: reference=broad_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
