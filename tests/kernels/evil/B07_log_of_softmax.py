"""The logarithm of a softmax that has underflowed, minus infinity far from the maximum. Large inputs stop it."""
# case: reference=log_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1).log_()
