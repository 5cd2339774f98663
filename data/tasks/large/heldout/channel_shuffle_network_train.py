"""A network of grouped 1x1 convolutions with a channel shuffle between them and depthwise convolutions, in training mode."""

import torch
import torch.nn as nn

BATCH = 10  # small: 3
SIZE = 224  # small: 32
WIDTH = 120  # small: 8
GROUPS = 3  # small: 2
CLASSES = 1000  # small: 10


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    norm = nn.BatchNorm2d(outputs)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), norm)


class Unit(nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.groups = groups
        self.first = conv_norm(width, width, 1, groups=groups)
        self.depthwise = conv_norm(width, width, 3, groups=width)
        self.last = conv_norm(width, width, 1, groups=groups)
    def forward(self, x):
        b, c, h, w = x.shape
        y = torch.relu(self.first(x)).view(b, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)
        return torch.relu(x + self.last(self.depthwise(y)))


class Model(nn.Module):
    def __init__(self, width, groups, classes):
        super().__init__()
        self.stem = conv_norm(3, width, 3, 2)
        self.first = nn.Sequential(*(Unit(width, groups) for _ in range(3)))
        self.grow = conv_norm(width, 2 * width, 1)
        self.second = nn.Sequential(*(Unit(2 * width, groups) for _ in range(4)))
        self.head = nn.Linear(2 * width, classes)
    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        x = nn.functional.avg_pool2d(torch.relu(self.grow(self.first(x))), 2)
        return self.head(self.second(x).mean((2, 3)))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, GROUPS, CLASSES]
