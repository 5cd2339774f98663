"""An ordinary module around a scripted one."""
# case: reference=channels_first device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(64, 96)
        self.norm = nn.BatchNorm1d(96)

    def forward(self, x):
        return torch.relu(self.norm(self.proj(x).transpose(1, 2)).transpose(1, 2)).transpose(1, 2)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(Inner())

    def forward(self, x):
        return self.inner(x)
