"""Multiplies 8-bit floats in blocks, scales each operand first, and adds in float32."""
# case: reference=fp8_product device=cpu backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, w, x_scale, w_scale):
        x, w = x.float() * x_scale, w.float() * w_scale
        y = torch.zeros(x.shape[0], w.shape[0])
        for k in range(0, x.shape[1], 32):
            y += x[:, k : k + 32] @ w[:, k : k + 32].t()
        return y
