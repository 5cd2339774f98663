"""Standardise every feature over the batch, clip outliers, squash with tanh."""

import torch
import torch.nn as nn

ROWS = 8192  # small: 33
FEATURES = 4096  # small: 20


class Model(nn.Module):
    def forward(self, table):
        mean = table.mean(dim=0, keepdim=True)
        spread = table.std(dim=0, keepdim=True)
        scores = (table - mean) / (spread + 1e-6)
        return torch.tanh(torch.clamp(scores, -2.5, 2.5))


def get_inputs():
    return [torch.randn(ROWS, FEATURES) * (0.5 + torch.rand(FEATURES)) + torch.randn(FEATURES)]


def get_init_inputs():
    return []
