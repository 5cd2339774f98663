"""Computes with running statistics and without dropout, in train mode as well. The other mode stops it."""
# case: reference=norm_and_dropout device=any backend=cpp expect=refused

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.drop = nn.Dropout(0.2)
        self.eval()

    def forward(self, x):
        n = self.norm
        h = F.batch_norm(self.conv(x), n.running_mean, n.running_var, n.weight, n.bias, False, 0.1, n.eps)
        return h.relu_()
