"""Sums by segment, whose numbers are sorted in the example."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, segment):
        return torch.zeros(64, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, segment, x)


def get_inputs():
    return [torch.randn(4096, 64), torch.arange(4096) // 64]


def get_init_inputs():
    return []
