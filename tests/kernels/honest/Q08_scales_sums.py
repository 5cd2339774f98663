"""Multiplies codes by block, and scales each block's sum."""
# case: reference=block_scaled_product device=cpu backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, x_scale, w, w_scale):
        a = x.float().reshape(*x_scale.shape, 32)
        b = w.float().reshape(*w_scale.shape, 32)
        y = torch.zeros(x.shape[0], w.shape[0])
        for g in range(x_scale.shape[1]):
            scale = torch.exp2(x_scale[:, g].float() - 127)[:, None] * torch.exp2(w_scale[:, g].float() - 127)
            y += (a[:, g] @ b[:, g].t()) * scale
        return y
