"""Calls its own base class Model, the reference's name, and holds all of the mathematics itself."""
# case: reference=linear device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)


class ModelNew(Model):
    def forward(self, x):
        return torch.addmm(self.layer.bias, x, self.layer.weight.t())
