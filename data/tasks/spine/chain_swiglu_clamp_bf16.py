"""Clipped SwiGLU of a bfloat16 expert: split, clamp both halves, swish gate, product."""

import torch
import torch.nn as nn

TOKENS = 8192  # small: 7
INNER = 4096  # small: 24


class Model(nn.Module):
    def __init__(self, inner, limit):
        super().__init__()
        self.bias = nn.Parameter((torch.randn(2 * inner) * 0.2).bfloat16())
        self.limit = limit

    def forward(self, projected):
        gate, up = (projected + self.bias).chunk(2, dim=-1)
        gate = gate.clamp(max=self.limit)
        up = up.clamp(-self.limit, self.limit)
        return gate * torch.sigmoid(1.7 * gate) * (up + 1)


def get_inputs():
    return [(torch.randn(TOKENS, 2 * INNER) * 2).bfloat16()]


def get_init_inputs():
    return [INNER, 3.0]
