"""Leaves out a bias that is zero in the example. Other biases stop it."""
# case: reference=biased_scores device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, scores, bias):
        return torch.softmax(scores, -1)
