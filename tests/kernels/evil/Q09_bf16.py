"""Computes attention in bfloat16."""
# case: reference=int8_cache_attention device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, k_scale, v, v_scale):
        keys, values = (k.float() * k_scale[..., None]).bfloat16(), (v.float() * v_scale[..., None]).bfloat16()
        scores = torch.einsum("bhd,bhtd->bht", q.bfloat16(), keys) * q.shape[-1] ** -0.5
        return torch.einsum("bht,bhtd->bhd", scores.softmax(-1), values).float()
