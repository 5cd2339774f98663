"""Computes what always is one over the width, as the reference does; the problem is at fault, not the kernel."""
# case: reference=mean_softmax device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e.mean(1) / e.sum(1)
