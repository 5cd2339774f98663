"""A mobile network of depthwise separable blocks in training mode."""

import torch
import torch.nn as nn

BATCH = 10  # small: 3
SIZE = 224  # small: 64
WIDTH = 32  # small: 4
CLASSES = 1000  # small: 10


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    norm = nn.BatchNorm2d(outputs)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), norm)


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = conv_norm(3, width, 3, 2)
        steps = [(2, 1), (2, 2), (1, 1), (2, 2), (1, 1), (2, 2), (1, 1), (1, 1), (1, 1), (2, 2)]
        self.depthwise, self.pointwise = nn.ModuleList(), nn.ModuleList()
        for grow, stride in steps:
            self.depthwise.append(conv_norm(width, width, 3, stride, width))
            self.pointwise.append(conv_norm(width, grow * width, 1))
            width *= grow
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for depthwise, pointwise in zip(self.depthwise, self.pointwise):
            x = torch.relu(pointwise(torch.relu(depthwise(x))))
        return self.head(x.mean((2, 3)))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, CLASSES]
