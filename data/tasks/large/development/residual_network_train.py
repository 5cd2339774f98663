"""A residual network of basic blocks in training mode: the batch's statistics and their running means."""

import torch
import torch.nn as nn

BATCH = 10  # small: 3
SIZE = 224  # small: 32
WIDTH = 64  # small: 4
CLASSES = 1000  # small: 10


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    norm = nn.BatchNorm2d(outputs)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), norm)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.second = conv_norm(inputs, outputs, 3, stride), conv_norm(outputs, outputs, 3)
        self.skip = conv_norm(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.skip(x))


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = conv_norm(3, width, 7, 2)
        widths = [width, width, 2 * width, 2 * width, 4 * width, 4 * width]
        self.blocks = nn.Sequential(*(Block(a, b, 1 + (b > a)) for a, b in zip([width, *widths], widths)))
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, CLASSES]
