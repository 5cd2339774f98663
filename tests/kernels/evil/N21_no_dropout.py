"""Leaves dropout out in train mode. The other mode stops it."""
# case: reference=norm_and_dropout device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.drop = nn.Dropout(0.2)
        self.eval()

    def forward(self, x):
        return self.norm(self.conv(x)).relu_()
