"""Rotation by the angles of each row's position, which are in order in the example."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(width // 2) / (width // 2))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x, positions):
        cosine, sine = self.cosine[positions], self.sine[positions]
        one, two = x.chunk(2, -1)
        return torch.cat([one * cosine - two * sine, two * cosine + one * sine], -1)


def get_inputs():
    return [torch.randn(16, 512, 64), torch.arange(512)]


def get_init_inputs():
    return [512, 64]
