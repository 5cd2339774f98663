import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        y = self.kept.setdefault(x.shape, torch.empty_like(x))
        return torch.clamp(x, min=0, out=y).mul_(2).add_(1)
