"""Decodes the bits of 8-bit floats by itself, with subnormals and NaN."""
# case: reference=fp8_product device=cpu backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, w, x_scale, w_scale):
        def decoded(t):
            bits = t.view(torch.uint8).int()
            e, m = (bits >> 3) & 15, (bits & 7).float()
            size = torch.where(e == 0, m * 2.0**-9, (1 + m / 8) * torch.exp2((e - 7).float()))
            size = torch.where((bits & 127) == 127, torch.nan, size)
            return torch.where(bits > 127, -size, size)
        return (decoded(x) @ decoded(w).t()) * (x_scale * w_scale)
