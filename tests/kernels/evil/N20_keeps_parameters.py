"""Looks its parameters up once. Parameters that others take the place of stop it."""
# case: reference=linear_relu device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.found = None

    def forward(self, x):
        if self.found is None:
            self.found = [self.layer.weight, self.layer.bias]
        return torch.nn.functional.linear(x, *self.found).relu_()
