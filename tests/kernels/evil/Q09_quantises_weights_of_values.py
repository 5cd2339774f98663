"""Quantises the softmax to 8 bits."""
# case: reference=int8_cache_attention device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, k_scale, v, v_scale):
        keys, values = k.float() * k_scale[..., None], v.float() * v_scale[..., None]
        scores = torch.einsum("bhd,bhtd->bht", q, keys) * q.shape[-1] ** -0.5
        p = scores.softmax(-1)
        p = (p * 255).round() / 255
        return torch.einsum("bht,bhtd->bhd", p, values)
