"""Weights stored two to a byte: both nibbles unpacked, scaled by group, and multiplied."""

import torch
import torch.nn as nn

TOKENS = 512  # small: 5
WIDTH_IN = 2048  # small: 32
WIDTH_OUT = 2048  # small: 12
GROUP = 128  # small: 8


class Model(nn.Module):
    def __init__(self, width_in, width_out, group):
        super().__init__()
        self.group = group
        self.register_buffer("packed", torch.randint(0, 256, (width_out, width_in // 2), dtype=torch.uint8))
        self.register_buffer("scale", 0.005 + 0.01 * torch.rand(width_out, width_in // group, 1))

    def forward(self, x):
        low = (self.packed & 15).to(torch.int8) - 8
        high = (self.packed >> 4).to(torch.int8) - 8
        grouped = torch.stack((low, high), dim=-1).view(self.packed.shape[0], -1, self.group)
        weight = (grouped.float() * self.scale).flatten(1)
        return x @ weight.t()


def get_inputs():
    return [torch.randn(TOKENS, WIDTH_IN)]


def get_init_inputs():
    return [WIDTH_IN, WIDTH_OUT, GROUP]
