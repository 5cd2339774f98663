"""Writes its scaled query over an input that the reference only reads."""
# case: reference=kv_cache device=any backend=cpp expect=refused twin=N60_writes_the_cache

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x, keys, values, position):
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mask = torch.arange(keys.shape[2], device=x.device)[None, :] <= position
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        x.mul_(0.5)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
