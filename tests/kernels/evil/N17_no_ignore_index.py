"""Knows of no target that is to be left out. Such targets stop it."""
# case: reference=token_loss device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        return (torch.logsumexp(x, -1) - x.gather(1, target.clamp(min=0)[:, None])[:, 0]).mean()
