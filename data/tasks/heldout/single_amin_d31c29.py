"""Amin."""

import torch
import torch.nn as nn

BATCH = 24  # small: 2
LENGTH = 128  # small: 4
WIDTH = 512  # small: 16


class Model(nn.Module):
    def forward(self, x):
        features = torch.min(x, dim=0)[0]
        return features


def get_inputs():
    return [(torch.randn(BATCH, LENGTH, WIDTH) * (0.5 + torch.rand(BATCH, LENGTH, 1))).bfloat16()]


def get_init_inputs():
    return []
