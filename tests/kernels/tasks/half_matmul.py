"""A matrix product of 16-bit floats with a long inner dimension."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(64, 2048).half(), torch.randn(2048, 64).half()]


def get_init_inputs():
    return []
