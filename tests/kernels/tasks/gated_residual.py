"""A branch behind a gate that is zero until it is trained."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.gate * self.layer(x)


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return [512]
