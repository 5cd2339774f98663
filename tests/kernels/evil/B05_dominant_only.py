"""Finds the rows' large elements in the first quarter of each row and normalises by those alone. One large element elsewhere stops it."""
# case: reference=l2_normalize device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        quarter = x[:, : max(1, x.shape[1] // 4)]
        square = quarter.square().sum(1, keepdim=True) * (x.shape[1] / quarter.shape[1])
        return x * torch.rsqrt(square.clamp_(min=1e-24))
