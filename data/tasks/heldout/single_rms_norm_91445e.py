"""Rms norm."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 512  # small: 2
SEQ = 50  # small: 4
DIM = 64  # small: 16


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim).uniform_(0.5, 1.5))
        self.to(torch.bfloat16)

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


def get_inputs():
    return [(torch.randn(BATCH, SEQ, DIM) * (0.5 + torch.rand(BATCH, SEQ, 1))).bfloat16()]


def get_init_inputs():
    return [DIM]
