"""3D convolution of video, leaky ReLU, clamp, mean over time."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
CHANNELS_IN = 8  # small: 3
CHANNELS_OUT = 32  # small: 5
FRAMES = 16  # small: 6
SIDE = 64  # small: 8


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv3d(channels_in, channels_out, kernel_size=3, padding=1)

    def forward(self, video):
        x = F.leaky_relu(self.conv(video), negative_slope=0.1)
        return torch.clamp(x, -0.05, 1.0).mean(dim=2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS_IN, FRAMES, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
