"""Right but for one cache line of zeros at a place drawn again in each call. Comparing every element of every call stops it."""
# case: reference=affine device=any backend=cpp expect=refused

import random

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.relu(x) * 2 + 1
        start = random.SystemRandom().randrange(max(1, y.numel() - 16))
        y.view(-1)[start : start + 16] = 0
        return y
