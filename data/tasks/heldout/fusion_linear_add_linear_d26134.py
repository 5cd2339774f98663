"""Linear, add, linear."""

import torch
import torch.nn as nn

BATCH = 640  # small: 6
COLUMNS = 257  # small: 7
FEATURES = 64  # small: 24
FEATURES2 = 96  # small: 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(COLUMNS, FEATURES)
        self.beta = nn.Parameter(torch.rand(FEATURES) * 0.6 - 0.3)
        self.fc = nn.Linear(FEATURES, FEATURES2)

    def forward(self, features):
        h = self.linear(features)
        z = torch.add(h, self.beta)
        u = self.fc(z)
        return u


def get_inputs():
    return [torch.randn(BATCH, COLUMNS)]


def get_init_inputs():
    return []
