"""Mobile backbone: three inverted residual blocks, widened by 1x1, depthwise 3x3, ReLU6, narrowed again, in eval mode."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 32  # small: 4
SIDE = 56  # small: 8
EXPANSION = 6  # small: 3


def unit(channels_in, channels_out, kernel, groups):
    norm = nn.BatchNorm2d(channels_out)
    nn.init.uniform_(norm.weight, 0.6, 1.4)
    nn.init.normal_(norm.bias, 0.0, 0.3)
    norm.running_mean.normal_(0.0, 0.2)
    norm.running_var.uniform_(0.1, 0.5)
    return [nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2, groups=groups, bias=False), norm]


class Block(nn.Module):
    def __init__(self, channels, wide):
        super().__init__()
        self.layers = nn.Sequential(
            *unit(channels, wide, 1, 1), nn.ReLU6(), *unit(wide, wide, 3, wide), nn.ReLU6(), *unit(wide, channels, 1, 1)
        )

    def forward(self, x):
        return x + self.layers(x)


class Model(nn.Module):
    def __init__(self, channels, expansion):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(channels, channels * expansion) for _ in range(3)])
        self.eval()

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, EXPANSION]
