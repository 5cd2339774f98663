"""Scales the last position as the one before it."""
# case: reference=int8_cache_attention device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, k_scale, v, v_scale):
        keys, values = k.float() * k_scale[..., None], v.float() * torch.cat([v_scale[..., :-1], v_scale[..., -2:-1]], -1)[..., None]
        scores = torch.einsum("bhd,bhtd->bht", q, keys) * q.shape[-1] ** -0.5
        p = scores.softmax(-1)
        return torch.einsum("bht,bhtd->bhd", p, values)
