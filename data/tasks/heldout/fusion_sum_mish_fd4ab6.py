"""Sum, mish."""

import torch
from torch import nn

BATCH = 62  # small: 3
CHANNELS = 160  # small: 16
LENGTH = 77  # small: 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Mish()

    def forward(self, features):
        y = self.layer(torch.sum(features, dim=-1))
        return y


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return []
