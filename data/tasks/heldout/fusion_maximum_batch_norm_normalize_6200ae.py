"""Maximum, batch norm, normalize."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 1  # small: 1
CHANNELS = 48  # small: 16
SIDE = 128  # small: 12


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("beta", torch.rand(channels, 1, 1) * 0.6 - 0.3)
        self.norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.eval()

    def forward(self, x):
        x = torch.maximum(x, self.beta)
        x = self.norm(x)
        return F.normalize(x, p=2.0, dim=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + torch.rand(BATCH, CHANNELS, SIDE, 1))]


def get_init_inputs():
    return [CHANNELS]
