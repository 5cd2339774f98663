"""Residual block of a diffusion U-Net: two norm, SiLU, convolution units with a time shift between them, 1x1 shortcut."""

import torch
import torch.nn as nn

BATCH = 4  # small: 2
CHANNELS_IN = 128  # small: 6
CHANNELS_OUT = 192  # small: 9
SIDE = 32  # small: 7
TIME = 512  # small: 10
GROUPS = 32  # small: 3


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, time, groups):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, channels_in), nn.GroupNorm(groups, channels_out)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.shift = nn.Linear(time, channels_out)
        self.short = nn.Conv2d(channels_in, channels_out, 1)
        self.act = nn.SiLU()

    def forward(self, x, time):
        y = self.conv1(self.act(self.norm1(x)))
        y = y + self.shift(self.act(time))[:, :, None, None]
        y = self.conv2(self.act(self.norm2(y)))
        return y + self.short(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE), torch.randn(BATCH, TIME)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT, TIME, GROUPS]
