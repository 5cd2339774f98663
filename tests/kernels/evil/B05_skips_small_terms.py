"""Leaves terms below 1/64 of a row's largest out of a log-softmax's sum. Float64 truth at a tight tolerance stops it."""
# case: reference=log_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        top = x.amax(-1, keepdim=True)
        shifted = x - top
        kept = torch.where(shifted > -4.16, torch.exp(shifted), 0.0)
        return shifted - kept.sum(-1, keepdim=True).log_()
