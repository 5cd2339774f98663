"""A wide softmax whose sum is guessed from its first 256 terms, good to 2 %. Float64 truth at a scaled tolerance stops it."""
# case: reference=broad_softmax device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = torch.exp(x[:, :256]).sum(1, keepdim=True) * (x.shape[1] / min(256, x.shape[1]))
        return torch.exp(x).div_(total)
