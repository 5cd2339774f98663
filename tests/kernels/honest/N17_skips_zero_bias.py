"""Leaves out a bias only where all of it is zero."""
# case: reference=biased_scores device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, scores, bias):
        return torch.softmax(scores.add(bias) if bool(bias.any()) else scores, -1)
