"""Multiplies 8-bit floats as bfloat16, which holds them exactly, and adds in float32."""
# case: reference=fp8_product device=cpu backend=cpp expect=ok

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, w, x_scale, w_scale):
        return (x.bfloat16().float() @ w.bfloat16().float().t()) * x_scale * w_scale
