"""Runs under autocast and casts the result back to float32. A tolerance below that rounding stops it."""
# case: reference=linear device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)

    def forward(self, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.layer(x).float()
