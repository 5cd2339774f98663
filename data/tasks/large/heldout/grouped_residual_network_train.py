"""Residual blocks with grouped convolutions and channel gates in training mode, from images to class scores."""

import torch
import torch.nn as nn

BATCH = 10  # small: 3
SIZE = 224  # small: 64
WIDTH = 64  # small: 8
GROUP = 16  # small: 4
CLASSES = 1000  # small: 10


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    norm = nn.BatchNorm2d(outputs)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), norm)


class Block(nn.Module):
    def __init__(self, inputs, width, stride, group):
        super().__init__()
        self.first, self.last = conv_norm(inputs, width, 1), conv_norm(width, width, 1)
        self.middle = conv_norm(width, width, 3, stride, width // group)
        self.down, self.up = nn.Linear(width, width // 4), nn.Linear(width // 4, width)
        self.skip = conv_norm(inputs, width, 1, stride)
        for layer in (self.down, self.up):
            nn.init.normal_(layer.weight, 0.0, 0.5)
    def forward(self, x):
        y = torch.relu(self.middle(torch.relu(self.first(x))))
        gate = torch.sigmoid(self.up(torch.relu(self.down(y.mean((2, 3))))))
        return torch.relu(self.last(y * gate[:, :, None, None]) + self.skip(x))


class Model(nn.Module):
    def __init__(self, width, group, classes):
        super().__init__()
        self.stem = conv_norm(3, width // 2, 3, 2)
        widths = [width // 2, width, 2 * width, 4 * width, 8 * width]
        self.blocks = nn.Sequential(*(Block(a, b, 2, group) for a, b in zip(widths, widths[1:])))
        self.head = nn.Linear(8 * width, classes)
    def forward(self, x):
        x = self.blocks(torch.relu(self.stem(x)))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, GROUP, CLASSES]
