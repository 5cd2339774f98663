"""Takes rows to be in order, as they are in the example. Other positions stop it."""
# case: reference=rotated_positions device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(width // 2) / (width // 2))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x, positions):
        cosine, sine = self.cosine[: x.shape[1]], self.sine[: x.shape[1]]
        one, two = x.chunk(2, -1)
        return torch.cat([one * cosine - two * sine, two * cosine + one * sine], -1)
