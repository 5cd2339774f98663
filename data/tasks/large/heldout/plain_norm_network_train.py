"""A plain deep network with batch norm after each 3x3 convolution, in training mode, and two linear layers."""

import torch
import torch.nn as nn

BATCH = 10  # small: 3
SIZE = 224  # small: 32
WIDTH = 48  # small: 4
HIDDEN = 1024  # small: 16
CLASSES = 1000  # small: 10


class Model(nn.Module):
    def __init__(self, width, hidden, classes):
        super().__init__()
        layers, inputs = [], 3
        for step in (1, 1, 0, 2, 2, 0, 4, 4, 0, 8, 8, 0):
            if step == 0:
                layers.append(nn.MaxPool2d(2, 2))
                continue
            norm = nn.BatchNorm2d(step * width)
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
            layers += [nn.Conv2d(inputs, step * width, 3, padding=1, bias=False), norm, nn.ReLU(inplace=True)]
            inputs = step * width
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d((4, 4))
        self.head = nn.Sequential(nn.Linear(16 * inputs, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes))
    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.features(x)), 1))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, HIDDEN, CLASSES]
