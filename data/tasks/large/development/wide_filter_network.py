"""An early image network: large strided filters, overlapping pools, wide linear layers."""

import torch
import torch.nn as nn

BATCH = 256  # small: 2
SIZE = 224  # small: 67
HIDDEN = 4096  # small: 16
CLASSES = 1000  # small: 10


class Model(nn.Module):
    def __init__(self, size, hidden, classes):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3, 96, 11, 4, 2), nn.Conv2d(96, 256, 5, padding=2),
                                    nn.Conv2d(256, 384, 3, padding=1), nn.Conv2d(384, 256, 3, padding=1)])
        side = (((size - 7) // 4 + 1 - 3) // 2 + 1 - 3) // 2 + 1
        side = (side - 3) // 2 + 1
        self.linears = nn.ModuleList([nn.Linear(256 * side * side, hidden), nn.Linear(hidden, classes)])
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.convs[0](x)), 3, 2)
        x = nn.functional.max_pool2d(torch.relu(self.convs[1](x)), 3, 2)
        x = nn.functional.max_pool2d(torch.relu(self.convs[3](torch.relu(self.convs[2](x)))), 3, 2)
        return self.linears[1](torch.relu(self.linears[0](torch.flatten(x, 1))))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return [SIZE, HIDDEN, CLASSES]
