"""Batched products of sizes that no tile divides, scaled, with ReLU."""

import torch
import torch.nn as nn

BATCH = 96  # small: 2
M = 513  # small: 9
K = 1025  # small: 17
N = 769  # small: 11


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.bmm(a, b) * 0.03)


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []
