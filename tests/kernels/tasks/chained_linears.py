"""Two linear layers with nothing between them, which one matrix can replace."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, out, bias=False)

    def forward(self, x):
        return self.second(self.first(x))


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return [512, 1024, 128]
