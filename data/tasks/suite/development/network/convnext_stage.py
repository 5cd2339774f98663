"""Three ConvNeXt blocks: 7x7 depthwise convolution, layer norm and two linear layers in channels-last, layer scale, residual."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS = 128  # small: 6
SIDE = 28  # small: 8
DEPTH = 3  # small: 2


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(0.5 + 0.5 * torch.rand(channels))

    def forward(self, x):
        y = self.norm(self.mix(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(nn.functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class Model(nn.Module):
    def __init__(self, channels, depth):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(channels) for _ in range(depth)])

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, DEPTH]
