"""Addcmul."""

import torch
import torch.nn as nn

ROWS = 9  # small: 5
FEATURES = 17100  # small: 20


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.rand(FEATURES) * 1.0 - 0.5)
        self.weight = nn.Parameter(torch.empty(FEATURES).uniform_(0.5, 1.5))

    def forward(self, features):
        features = torch.addcmul(self.beta, features, self.weight)
        return features


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return []
