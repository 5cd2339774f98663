"""Group norm and SiLU of a diffusion U-Net."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16  # cpu: 4  # small: 2
CHANNELS = 256  # cpu: 64  # small: 8
SIDE = 64  # cpu: 32  # small: 5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, CHANNELS)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 1.5 + 0.2]


def get_init_inputs():
    return []
