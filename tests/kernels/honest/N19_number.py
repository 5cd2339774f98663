"""Sums in another order for its number than the reference does."""
# case: reference=number_beside device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        top = x.amax(-1, keepdim=True)
        top = torch.where(top.isinf(), 0, top)
        return torch.relu(x.sum(-1)), ((x - top).exp_().sum(-1).log_() + top[:, 0]).double().mean().item()
