"""Maximum, chunk, sigmoid, mul."""

import torch
from torch import nn

BATCH = 97  # small: 3
SEQ = 100  # small: 5
HIDDEN_SIZE = 256  # small: 24


class Model(nn.Module):
    def forward(self, features, y):
        t = features.maximum(y)
        tmp, mid = t.split(t.shape[-1] // 2, dim=-1)
        part = mid.sigmoid()
        t2 = tmp.mul(part)
        return t2


def get_inputs():
    return [torch.randn(BATCH, SEQ, HIDDEN_SIZE) * 1.5, torch.randn(BATCH, SEQ, 1) * 0.7]


def get_init_inputs():
    return []
