"""Leaves out targets of -100, in the sum and in the count."""
# case: reference=token_loss device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        keep = target != -100
        loss = torch.logsumexp(x, -1) - x.gather(1, target.clamp(min=0)[:, None])[:, 0]
        return torch.where(keep, loss, 0).sum() / keep.sum()
