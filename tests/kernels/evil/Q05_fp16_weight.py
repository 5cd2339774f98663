"""Unpacks the weight to float16."""
# case: reference=int4_group_linear device=cpu backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, packed, scale, zero):
        low, high = packed & 15, packed >> 4
        codes = torch.stack([low, high], -1).reshape(packed.shape[0], -1)
        group = codes.shape[1] // scale.shape[1]
        wide = codes.float().reshape(*scale.shape, group)
        weight = ((wide - zero.float()[..., None]) * scale[..., None]).reshape(packed.shape[0], -1)
        return x @ weight.half().float().t()
