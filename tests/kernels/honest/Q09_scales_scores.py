"""Scales scores and probabilities instead of keys and values."""
# case: reference=int8_cache_attention device=cpu backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, k_scale, v, v_scale):
        scores = torch.einsum("bhd,bhtd->bht", q * q.shape[-1] ** -0.5, k.float()) * k_scale
        e = torch.exp(scores - scores.amax(-1, keepdim=True))
        return torch.einsum("bht,bhtd->bhd", e * v_scale, v.float()) / e.sum(-1, keepdim=True)
