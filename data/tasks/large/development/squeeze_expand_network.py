"""Fire-like blocks: a 1x1 squeeze, 1x1 and 3x3 expansions side by side, concatenated."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
SIZE = 224  # small: 32
WIDTH = 64  # small: 8
CLASSES = 1000  # small: 10


class Fire(nn.Module):
    def __init__(self, inputs, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.small, self.large = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.small(x)), torch.relu(self.large(x))], 1)


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2)
        self.fires = nn.ModuleList([Fire(width, width // 4, width), Fire(2 * width, width // 4, width),
                                    Fire(2 * width, width // 2, 2 * width), Fire(4 * width, width // 2, 2 * width)])
        self.head = nn.Conv2d(4 * width, classes, 1)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 3, 2, ceil_mode=True)
        x = nn.functional.max_pool2d(self.fires[1](self.fires[0](x)), 3, 2, ceil_mode=True)
        x = self.fires[3](self.fires[2](x))
        return torch.relu(self.head(x)).mean((2, 3))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, CLASSES]
