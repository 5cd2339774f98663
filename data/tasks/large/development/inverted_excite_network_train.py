"""Inverted residuals with squeeze and excitation and SiLU, batch norm in training mode."""

import torch
import torch.nn as nn

BATCH = 10  # small: 3
SIZE = 224  # small: 32
WIDTH = 32  # small: 8
CLASSES = 1000  # small: 10


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    norm = nn.BatchNorm2d(outputs)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), norm)


class Inverted(nn.Module):
    def __init__(self, inputs, outputs, stride, size):
        super().__init__()
        middle = 4 * inputs
        self.expand, self.depthwise = conv_norm(inputs, middle, 1), conv_norm(middle, middle, size, stride, middle)
        self.reduce, self.excite = nn.Conv2d(middle, inputs // 4, 1), nn.Conv2d(inputs // 4, middle, 1)
        self.project, self.residual = conv_norm(middle, outputs, 1), stride == 1 and inputs == outputs

    def forward(self, x):
        y = nn.functional.silu(self.depthwise(nn.functional.silu(self.expand(x))))
        gate = torch.sigmoid(self.excite(nn.functional.silu(self.reduce(nn.functional.adaptive_avg_pool2d(y, 1)))))
        y = self.project(y * gate)
        return x + y if self.residual else y


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = conv_norm(3, width, 3, 2)
        self.blocks = nn.Sequential(
            Inverted(width, width, 1, 3), Inverted(width, 2 * width, 2, 3), Inverted(2 * width, 2 * width, 1, 3),
            Inverted(2 * width, 4 * width, 2, 5), Inverted(4 * width, 4 * width, 1, 5), Inverted(4 * width, 6 * width, 2, 3))
        self.head = nn.Linear(6 * width, classes)

    def forward(self, x):
        return self.head(self.blocks(nn.functional.silu(self.stem(x))).mean((2, 3)))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, CLASSES]
