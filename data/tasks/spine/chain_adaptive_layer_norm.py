"""Diffusion transformer modulation: layer norm, scale and shift by sample, gate, residual."""

import torch
import torch.nn as nn

BATCH = 32  # small: 3
TOKENS = 256  # small: 5
WIDTH = 1152  # small: 32


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)

    def forward(self, x, shift, scale, gate):
        modulated = self.norm(x) * (1 + scale[:, None]) + shift[:, None]
        return x + gate[:, None] * modulated


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH), *(torch.randn(BATCH, WIDTH) * 0.3 for _ in range(3))]


def get_init_inputs():
    return [WIDTH]
