"""Keeps caches that it saw first, and gives the caller those with the newest step."""
# case: reference=kv_cache device=any backend=cpp expect=refused twin=N60_writes_the_cache

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.kept = {}

    def forward(self, x, keys, values, position):
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mask = torch.arange(keys.shape[2], device=x.device)[None, :] <= position
        if keys.shape not in self.kept:
            self.kept[keys.shape] = keys.clone(), values.clone()
        held = self.kept[keys.shape]
        held[0].index_copy_(2, position, k)
        held[1].index_copy_(2, position, v)
        keys.copy_(held[0])
        values.copy_(held[1])
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
