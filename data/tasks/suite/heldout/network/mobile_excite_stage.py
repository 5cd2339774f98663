"""Two inverted residuals with squeeze and excitation in eval mode: expand, depthwise 5x5, gate by channel, project, skip."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
CHANNELS = 48  # small: 4
EXPAND = 240  # small: 12
SQUEEZE = 12  # small: 3
SIDE = 48  # small: 7


def unit(channels_in, channels_out, kernel, groups=1):
    norm = nn.BatchNorm2d(channels_out, eps=1e-3)
    nn.init.uniform_(norm.weight, 0.6, 1.4)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    norm.running_mean.normal_(0.0, 0.1)
    norm.running_var.uniform_(0.2, 0.6)
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2, groups=groups, bias=False), norm)


class Block(nn.Module):
    def __init__(self, channels, expand, squeeze):
        super().__init__()
        self.expand, self.depthwise = unit(channels, expand, 1), unit(expand, expand, 5, expand)
        self.down, self.up = nn.Conv2d(expand, squeeze, 1), nn.Conv2d(squeeze, expand, 1)
        nn.init.normal_(self.down.weight, 0.0, 0.5)
        nn.init.normal_(self.up.weight, 0.0, 1.0)
        self.project = unit(expand, channels, 1)
    def forward(self, x):
        y = F.silu(self.depthwise(F.silu(self.expand(x))))
        gate = self.up(F.silu(self.down(F.adaptive_avg_pool2d(y, 1))))
        return x + self.project(y * torch.sigmoid(gate))


class Model(nn.Module):
    def __init__(self, channels, expand, squeeze):
        super().__init__()
        self.blocks = nn.ModuleList([Block(channels, expand, squeeze) for _ in range(2)])
        self.eval()
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, EXPAND, SQUEEZE]
