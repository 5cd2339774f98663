"""Gathers the angles of the positions it is given."""
# case: reference=rotated_positions device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(width // 2) / (width // 2))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x, positions):
        cosine, sine = (table.index_select(0, positions) for table in (self.cosine, self.sine))
        one, two = x.chunk(2, -1)
        return torch.cat([torch.addcmul(-two * sine, one, cosine), torch.addcmul(one * sine, two, cosine)], -1)
