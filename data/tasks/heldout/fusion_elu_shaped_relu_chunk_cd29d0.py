"""Elu shaped, relu, chunk, sigmoid, mul."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 6  # small: 2
LENGTH = 128  # small: 7
DIM = 2560  # small: 24


class Model(nn.Module):
    def forward(self, x):
        x = F.elu(x, alpha=1.5)
        x = x.relu()
        x, y = x.split(x.shape[-1] // 2, dim=-1)
        x = F.sigmoid(x)
        y = y * x
        return y


def get_inputs():
    return [torch.randn(BATCH, LENGTH, DIM)]


def get_init_inputs():
    return []
