"""Swish, slice, leaky relu, chunk, gelu and 1 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 2  # small: 2
TOKENS = 50  # small: 4
WIDTH = 768  # small: 24


class Model(nn.Module):
    def forward(self, inputs):
        inputs = inputs * torch.sigmoid(inputs)
        h = F.leaky_relu(inputs[..., inputs.shape[-1] // 2 :], negative_slope=0.05)
        h, z = h.split(h.shape[-1] // 2, dim=-1)
        z = F.gelu(z)
        return h.mul(z)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH) * (0.5 + torch.rand(BATCH, TOKENS, 1))]


def get_init_inputs():
    return []
