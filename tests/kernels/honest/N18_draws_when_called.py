"""Draws scaled masks into a buffer that it keeps, when it is called, and returns new memory."""
# case: reference=dropout device=cpu backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.masks = {}

    def forward(self, x):
        mask = self.masks.setdefault(x.shape, torch.empty_like(x))
        return mask.bernoulli_(0.5).mul_(6.0) * x
