"""Dense blocks: each layer reads the concatenation of all before it, batch norm in training mode."""

import torch
import torch.nn as nn

BATCH = 10  # small: 3
SIZE = 56  # small: 8
WIDTH = 64  # small: 6
GROWTH = 32  # small: 4
LAYERS = 6  # small: 3


class Layer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, growth, 3, padding=1, bias=False)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias, 0.0, 0.2)

    def forward(self, x):
        return torch.cat([x, self.conv(torch.relu(self.norm(x)))], 1)


class Model(nn.Module):
    def __init__(self, width, growth, layers):
        super().__init__()
        parts = []
        for _ in range(3):
            for _ in range(layers):
                parts.append(Layer(width, growth))
                width += growth
            parts += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        return self.parts(x)


def get_inputs():
    return [torch.randn(BATCH, WIDTH, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, GROWTH, LAYERS]
