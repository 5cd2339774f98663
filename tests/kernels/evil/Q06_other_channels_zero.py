"""Reads the packed zero points in reverse order."""
# case: reference=int4_words_linear device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, out, group):
        super().__init__()
        self.group = group
        w = torch.randn(width, out) * width**-0.5
        scale = w.reshape(-1, group, out).abs().amax(1) / 7
        codes = (w / scale.repeat_interleave(group, 0)).round().add(8).clamp(0, 15).int()
        shifts = torch.arange(0, 32, 4, dtype=torch.int32)
        self.register_buffer("shifts", shifts)
        self.register_buffer("qweight", (codes.reshape(-1, 8, out) << shifts[:, None]).sum(1, dtype=torch.int32))
        zeros = torch.full((width // group, out // 8, 8), 8, dtype=torch.int32)
        self.register_buffer("qzeros", (zeros << shifts).sum(-1, dtype=torch.int32))
        self.register_buffer("scales", scale.half())

    def forward(self, x):
        codes = ((self.qweight[:, None] >> self.shifts[:, None]) & 15).reshape(-1, self.qweight.shape[1])
        zeros = ((self.qzeros[..., None] >> self.shifts.flip(0)) & 15).reshape(self.scales.shape)
        groups = torch.arange(codes.shape[0], device=x.device) // self.group
        weight = (codes - zeros[groups]).half() * self.scales[groups]
        return x @ weight
