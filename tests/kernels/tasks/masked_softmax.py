"""Softmax over what a mask leaves, which is everything in the example."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, mask):
        return torch.softmax(x.masked_fill(~mask, float("-inf")), -1)


def get_inputs():
    return [torch.randn(16, 128, 128), torch.ones(16, 128, 128, dtype=torch.bool)]


def get_init_inputs():
    return []
