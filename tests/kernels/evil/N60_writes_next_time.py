"""Answers first and writes the caches when it is called again."""
# case: reference=kv_cache device=any backend=cpp expect=refused twin=N60_writes_last

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.due = []

    def forward(self, x, keys, values, position):
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mask = torch.arange(keys.shape[2], device=x.device)[None, :] <= position
        for tensor, place, value in self.due:
            tensor.index_copy_(2, place, value)
        self.due = [(keys, position.clone(), k), (values, position.clone(), v)]
        new_keys, new_values = keys.index_copy(2, position, k), values.index_copy(2, position, v)
        return F.scaled_dot_product_attention(q, new_keys, new_values, attn_mask=mask)
