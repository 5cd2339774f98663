"""Convolution with stride, dilation and an uneven padding, without bias."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS_IN = 64  # small: 4
CHANNELS_OUT = 96  # small: 5
HEIGHT = 120  # small: 17
WIDTH = 140  # small: 20


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=(2, 4), dilation=(2, 3), bias=False)
    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
