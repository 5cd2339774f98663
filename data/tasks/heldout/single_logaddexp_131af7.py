"""Logaddexp."""

import torch
from torch import nn

BATCH = 512  # small: 7
WIDTH = 3001  # small: 13


class Model(nn.Module):
    def forward(self, x, y):
        x = torch.logaddexp(x, y)
        return x


def get_inputs():
    return [(torch.randn(BATCH, WIDTH) * (0.5 + torch.rand(BATCH, 1))).bfloat16(), (torch.randn(BATCH, WIDTH) * (0.5 + torch.rand(BATCH, 1))).bfloat16()]


def get_init_inputs():
    return []
