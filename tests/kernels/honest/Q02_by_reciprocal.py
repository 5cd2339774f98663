"""Quantises with the reciprocal of the scale, which rounds a few values on a boundary the other way."""
# case: reference=fp8_rows_linear device=cpu backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        w = torch.randn(out, width) * width**-0.5
        scale = w.abs().amax(1, keepdim=True) / 448
        self.register_buffer("weight", (w / scale).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)

    def forward(self, x):
        wide = x.float()
        most = wide.abs().amax(-1, keepdim=True).clamp(min=1e-12)
        codes = (wide * (448 / most)).clamp(-448, 448).to(torch.float8_e4m3fn)
        y = codes.float() @ (self.weight.float() * self.scale).t()
        return (y * (most / 448)).to(x.dtype)
