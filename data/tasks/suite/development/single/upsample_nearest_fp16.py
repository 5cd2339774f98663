"""Half-precision feature maps doubled by repeating pixels, as a diffusion decoder does."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
CHANNELS = 256  # small: 4
SIDE = 96  # small: 6


class Model(nn.Module):
    def forward(self, x):
        return F.interpolate(x, scale_factor=2.0, mode="nearest")


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE).half()]


def get_init_inputs():
    return []
