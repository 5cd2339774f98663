"""Writes one over the width, the only value this reference can have. Right but worth nothing: the problem's health tells."""
# case: reference=mean_softmax device=any backend=cpp expect=reported

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full((x.shape[0],), 1.0 / x.shape[1], dtype=x.dtype, device=x.device)
