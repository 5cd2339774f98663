"""Scales all keys and values of a head by their mean scale."""
# case: reference=int8_cache_attention device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, k_scale, v, v_scale):
        keys, values = k.float() * k_scale.mean(-1)[..., None, None], v.float() * v_scale.mean(-1)[..., None, None]
        scores = torch.einsum("bhd,bhtd->bht", q, keys) * q.shape[-1] ** -0.5
        p = scores.softmax(-1)
        return torch.einsum("bht,bhtd->bhd", p, values)
