"""Group norm, Mish, added to the stream."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16  # cpu: 4  # small: 2
CHANNELS = 128  # cpu: 32  # small: 8
LENGTH = 4096  # cpu: 2048  # small: 11


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(8, CHANNELS)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x):
        return x + F.mish(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH) * 1.5 + 0.2]


def get_init_inputs():
    return []
