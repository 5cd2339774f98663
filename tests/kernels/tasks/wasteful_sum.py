"""A sum over products that share a factor: written the long way, so that an honest rewrite is many times faster."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, terms):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(terms))

    def forward(self, x):
        return (x[:, :, None] * self.weight).sum(dim=-1)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [96]
