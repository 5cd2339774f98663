"""Diffusion U-Net step: group norm, scale and shift from the time embedding, SiLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # small: 2
CHANNELS = 128  # small: 8
GROUPS = 32  # small: 4
SIDE = 64  # small: 7


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x, scale, shift):
        x = self.norm(x) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]
        return F.silu(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE), torch.randn(BATCH, CHANNELS) * 0.3, torch.randn(BATCH, CHANNELS) * 0.3]


def get_init_inputs():
    return [GROUPS, CHANNELS]
