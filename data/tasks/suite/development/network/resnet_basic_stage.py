"""Two basic residual blocks of a vision backbone in eval mode, the first halving the resolution."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHANNELS = 64  # small: 4
SIDE = 56  # small: 8


class Block(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.short = nn.Identity()
        if stride != 1:
            self.short = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out))

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.short(x))


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.blocks = nn.Sequential(Block(channels, 2 * channels, 2), Block(2 * channels, 2 * channels, 1))
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.6, 1.4)
                nn.init.normal_(module.bias, 0.0, 0.2)
                module.running_mean.normal_(0.0, 0.1)
                module.running_var.uniform_(0.2, 0.6)
        self.eval()

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
