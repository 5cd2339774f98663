"""Atrous pyramid: 1x1, three dilated convolutions and the image mean, each with batch norm, joined and projected."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # small: 2
CHANNELS_IN = 128  # small: 6
CHANNELS_OUT = 64  # small: 4
SIDE = 32  # small: 9


def unit(channels_in, channels_out, dilation):
    kernel = 3 if dilation > 1 else 1
    norm = nn.BatchNorm2d(channels_out)
    nn.init.uniform_(norm.weight, 0.6, 1.4)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    norm.running_mean.normal_(0.0, 0.1)
    norm.running_var.uniform_(0.2, 0.6)
    padding = dilation if dilation > 1 else 0
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, kernel, padding=padding, dilation=dilation, bias=False), norm, nn.ReLU())


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.branches = nn.ModuleList([unit(channels_in, channels_out, d) for d in (1, 2, 4, 6)])
        self.image = nn.Sequential(nn.AdaptiveAvgPool2d(1), unit(channels_in, channels_out, 1))
        self.join = unit(5 * channels_out, channels_out, 1)
        self.eval()

    def forward(self, x):
        found = [branch(x) for branch in self.branches]
        found.append(F.interpolate(self.image(x), size=x.shape[2:], mode="bilinear", align_corners=False))
        return self.join(torch.cat(found, dim=1))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE) + torch.randn(BATCH, CHANNELS_IN, 1, 1)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
