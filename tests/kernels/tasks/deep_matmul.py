"""A matrix product with a long inner dimension: much work for a small output."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(128, 8192), torch.randn(8192, 128)]


def get_init_inputs():
    return []
