import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        scale = 1 / (1 + x.abs().mean(-1, keepdim=True))
        return torch.tanh(x * scale) * self.weight


def get_inputs():
    return [torch.randn(5, 3, 1000)]


def get_init_inputs():
    return [1000]
