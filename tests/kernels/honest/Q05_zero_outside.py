"""Multiplies codes by group, takes the zero point out of the sum, and scales each group's sum."""
# case: reference=int4_group_linear device=cpu backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, packed, scale, zero):
        low, high = packed & 15, packed >> 4
        codes = torch.stack([low, high], -1).reshape(packed.shape[0], -1)
        group = codes.shape[1] // scale.shape[1]
        wide = codes.float().reshape(*scale.shape, group)
        ((wide - zero.float()[..., None]) * scale[..., None]).reshape(packed.shape[0], -1)
        by_group = x.reshape(x.shape[0], scale.shape[1], group)
        sums = torch.einsum("mgk,ngk->mng", by_group, wide)
        less = by_group.sum(-1)[:, None, :] * zero.float()
        return ((sums - less) * scale).sum(-1)
