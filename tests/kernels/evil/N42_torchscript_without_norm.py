"""A TorchScript class that leaves the norm out."""
# case: reference=channels_first device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(64, 96)
        self.norm = nn.BatchNorm1d(96)

    @torch.jit.script_method
    def forward(self, x):
        return torch.relu(self.proj(x)).transpose(1, 2)
