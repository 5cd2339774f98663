"""A TorchScript class: its forward is a script method, its submodules are scripted."""
# case: reference=channels_first device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(64, 96)
        self.norm = nn.BatchNorm1d(96)

    @torch.jit.script_method
    def forward(self, x):
        return torch.relu(self.norm(self.proj(x).transpose(1, 2)).transpose(1, 2)).transpose(1, 2)
