"""A product with a weight of packed 4-bit integers, with scales and zero points by group."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, packed, scale, zero):
        low, high = packed & 15, packed >> 4
        codes = torch.stack([low, high], -1).reshape(packed.shape[0], -1)
        group = codes.shape[1] // scale.shape[1]
        wide = codes.float().reshape(*scale.shape, group)
        weight = ((wide - zero.float()[..., None]) * scale[..., None]).reshape(packed.shape[0], -1)
        return x @ weight.t()


def get_inputs():
    packed = torch.randint(0, 256, (64, 128), dtype=torch.uint8)
    scale = 0.01 * (1 + 0.1 * torch.rand(64, 8))
    zero = torch.full((64, 8), 8, dtype=torch.uint8)
    return [torch.randn(16, 256), packed, scale, zero]


def get_init_inputs():
    return []
