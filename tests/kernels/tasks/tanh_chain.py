"""Three matrix products with tanh between: long enough on a GPU that work done too late shows."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.third = nn.Linear(width, width, bias=False)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.second(x))
        return torch.tanh(self.third(x))


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return [2048]
