"""Vocoder upsampling: a transposed convolution over time, eight samples a frame."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS_IN = 256  # small: 6
CHANNELS_OUT = 128  # small: 3
FRAMES = 1024  # small: 12


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.up = nn.ConvTranspose1d(channels_in, channels_out, kernel_size=16, stride=8, padding=4)

    def forward(self, frames):
        return self.up(frames)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, FRAMES)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
