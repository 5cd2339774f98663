"""Three blocks of a metaformer: average pooling mixes the tokens, a 1x1 convolution MLP the channels, scaled residuals."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8  # small: 2
WIDTH = 112  # small: 8
SIDE = 28  # small: 6
BLOCKS = 3  # small: 2


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(1, width), nn.GroupNorm(1, width)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
        self.pool = nn.AvgPool2d(3, stride=1, padding=1)
        self.up, self.down = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1)
        self.scale1, self.scale2 = (nn.Parameter(torch.rand(width, 1, 1) + 0.5) for _ in range(2))
    def forward(self, x):
        y = self.norm1(x)
        x = x + self.scale1 * (self.pool(y) - y)
        return x + self.scale2 * self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, WIDTH, SIDE, SIDE) + torch.randn(BATCH, WIDTH, 1, 1)]


def get_init_inputs():
    return [WIDTH, BLOCKS]
