"""Sums each sequence as far as it goes."""
# case: reference=mean_of_lengths device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        keep = (torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]).to(x.dtype)
        return torch.bmm(keep[:, None], x)[:, 0] / lengths[:, None]
