"""A plain deep network: 3x3 convolutions with ReLU, pooling, three linear layers."""

import torch
import torch.nn as nn

BATCH = 10  # small: 2
SIZE = 224  # small: 32
WIDTH = 64  # small: 4
HIDDEN = 2048  # small: 16
CLASSES = 1000  # small: 10


class Model(nn.Module):
    def __init__(self, width, size, hidden, classes):
        super().__init__()
        layers, inputs = [], 3
        for outputs, repeat in ((width, 2), (2 * width, 2), (4 * width, 3), (8 * width, 3)):
            for _ in range(repeat):
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(inputs * (size // 16) ** 2, hidden), nn.ReLU(), nn.Dropout(0.0),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.0), nn.Linear(hidden, classes))
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, SIZE, HIDDEN, CLASSES]
