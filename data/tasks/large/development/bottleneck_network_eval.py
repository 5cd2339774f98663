"""Bottleneck blocks of a residual network, deployed: running statistics, residuals, ReLU."""

import torch
import torch.nn as nn

BATCH = 10  # small: 2
SIZE = 56  # small: 9
WIDTH = 64  # small: 4
BLOCKS = 3  # small: 2


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    norm = nn.BatchNorm2d(outputs)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), norm)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.parts = nn.ModuleList([conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride), conv_norm(width, 4 * width, 1)])
        self.skip = conv_norm(inputs, 4 * width, 1, stride) if stride > 1 or inputs != 4 * width else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.parts[1](torch.relu(self.parts[0](x))))
        return torch.relu(self.parts[2](y) + self.skip(x))


class Model(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        layers, inputs = [], width
        for stage, stride in enumerate((1, 2, 2)):
            for block in range(blocks):
                layers.append(Bottleneck(inputs, width * 2**stage, stride if block == 0 else 1))
                inputs = 4 * width * 2**stage
        self.layers = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, 0.0, 0.2)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        self.eval()

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(BATCH, WIDTH, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, BLOCKS]
