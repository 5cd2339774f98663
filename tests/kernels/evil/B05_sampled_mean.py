"""Means of every sixteenth element: near a half for the native inputs, as the true means are. Float64 truth stops it."""
# case: reference=mean_rows device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x[:, ::16].mean(1)
