"""Short causal depthwise convolution of a state-space layer, SiLU, and the gate branch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
CHANNELS = 1024  # small: 12
TIME = 2048  # small: 19
TAPS = 4  # small: 4


class Model(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size=taps, groups=channels, padding=taps - 1)

    def forward(self, x, gate):
        mixed = F.silu(self.conv(x)[..., : x.shape[-1]])
        return mixed * F.silu(gate)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, TIME), torch.randn(BATCH, CHANNELS, TIME)]


def get_init_inputs():
    return [CHANNELS, TAPS]
