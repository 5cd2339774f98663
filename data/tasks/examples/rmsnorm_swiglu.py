"""Transformer block glue: residual add, RMS norm with a gain, and a SwiGLU gate on the two halves.

Returns the gated activations and the new residual stream, as decoder implementations do.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 2  # small: 2
SEQUENCE = 512  # small: 7
WIDTH = 2048  # small: 32


class Model(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width).uniform_(0.5, 1.5))
        self.eps = eps

    def forward(self, x, residual):
        stream = x + residual
        scale = torch.rsqrt(stream.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        gate, value = (stream * scale * self.gain).chunk(2, dim=-1)
        return F.silu(gate) * value, stream


def get_inputs():
    return [torch.randn(BATCH, SEQUENCE, WIDTH), torch.randn(BATCH, SEQUENCE, WIDTH)]


def get_init_inputs():
    return [WIDTH]
