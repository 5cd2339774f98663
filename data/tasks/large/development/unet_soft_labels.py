"""A U-Net with batch norm in training mode and a softmax over the classes of each pixel."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
SIZE = 256  # small: 16
WIDTH = 32  # small: 4
CLASSES = 8  # small: 3


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    norm = nn.BatchNorm2d(outputs)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), norm)


class Pair(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.second = conv_norm(inputs, outputs, 3), conv_norm(outputs, outputs, 3)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.down = nn.ModuleList([Pair(3, width), Pair(width, 2 * width), Pair(2 * width, 4 * width)])
        self.ups = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)])
        self.up = nn.ModuleList([Pair(4 * width, 2 * width), Pair(2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](nn.functional.max_pool2d(first, 2))
        x = self.down[2](nn.functional.max_pool2d(second, 2))
        x = self.up[0](torch.cat([self.ups[0](x), second], 1))
        x = self.up[1](torch.cat([self.ups[1](x), first], 1))
        return torch.softmax(self.head(x), dim=1)


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, CLASSES]
