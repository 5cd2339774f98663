"""Three shuffle units in eval mode: half of the channels passes by, half goes through a separable branch, then both mix."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 232  # small: 8
SIDE = 28  # small: 6
UNITS = 3  # small: 2


def norm(channels):
    made = nn.BatchNorm2d(channels)
    nn.init.uniform_(made.weight, 0.6, 1.4)
    nn.init.normal_(made.bias, 0.0, 0.2)
    made.running_mean.normal_(0.0, 0.1)
    made.running_var.uniform_(0.2, 0.6)
    return made


class Unit(nn.Module):
    def __init__(self, half):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), norm(half), nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False), norm(half),
            nn.Conv2d(half, half, 1, bias=False), norm(half), nn.ReLU(inplace=True),
        )
    def forward(self, x):
        passed, changed = x.chunk(2, dim=1)
        x = torch.cat((passed, self.branch(changed)), dim=1)
        batch, channels, height, width = x.shape
        return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)


class Model(nn.Module):
    def __init__(self, channels, units):
        super().__init__()
        self.units = nn.Sequential(*(Unit(channels // 2) for _ in range(units)))
        self.eval()
    def forward(self, x):
        return self.units(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, UNITS]
