"""Many medium products in a batch, the second factor transposed, none of their sizes a multiple of eight."""

import torch
import torch.nn as nn

BATCH = 144  # small: 3
M = 203  # small: 7
K = 331  # small: 10
N = 229  # small: 9


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b.transpose(1, 2))


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, N, K)]


def get_init_inputs():
    return []
