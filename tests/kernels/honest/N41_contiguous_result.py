"""Returns contiguous memory where the reference's last operator left a transposed view."""
# case: reference=channels_first device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(64, 96)
        self.norm = nn.BatchNorm1d(96)

    def forward(self, x):
        return torch.relu(self.norm(self.proj(x).transpose(1, 2))).contiguous()
