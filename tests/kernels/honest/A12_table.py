"""Computes in its constructor what depends on the constructor's argument only, and keeps it in a buffer."""
# case: reference=fourier_features device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num):
        super().__init__()
        self.register_buffer("frequency", torch.exp(-torch.arange(num, dtype=torch.float32) / num), persistent=False)

    def forward(self, x):
        return torch.cos(x.unsqueeze(-1) * self.frequency).sum(1)
