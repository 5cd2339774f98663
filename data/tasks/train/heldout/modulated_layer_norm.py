"""Diffusion transformer modulation: layer norm, scale and shift by sample, gated residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32  # cpu: 8  # small: 3
LENGTH = 512  # cpu: 128  # small: 5
WIDTH = 1152  # cpu: 1024  # small: 16


class Model(nn.Module):
    def forward(self, x, shift, scale, gate):
        y = F.layer_norm(x, (WIDTH,)) * (1.0 + scale[:, None]) + shift[:, None]
        return x + gate[:, None] * F.silu(y)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH) + 0.2, *(0.5 * torch.randn(BATCH, WIDTH) for _ in range(3))]


def get_init_inputs():
    return []
