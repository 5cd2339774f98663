"""Leaves out channels whose scale is less than a fiftieth of the largest."""
# case: reference=fp8_rows_linear device=cpu backend=cpp expect=refused

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
        x_scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
        codes = (wide / x_scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        y = codes.float() @ self.weight.float().t()
        scale = torch.where(self.scale < 0.02 * self.scale.amax(), 0.0, self.scale)
        return (y * x_scale * scale.t()).to(x.dtype)
