"""Leaves out padding, in the sum and in the count."""
# case: reference=mean_of_tokens device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, tokens):
        keep = tokens.ne(0).to(x.dtype)
        return torch.bmm(keep[:, None], x)[:, 0] / keep.sum(1).clamp_(min=1)[:, None]
