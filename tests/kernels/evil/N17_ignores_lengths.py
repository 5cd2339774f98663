"""Ignores the lengths, which are full in the example. Other lengths stop it."""
# case: reference=mean_of_lengths device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        return x.mean(1)
