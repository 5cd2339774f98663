"""Small U-Net for one channel: two levels, transposed convolutions upwards, skips weighted by attention gates, class softmax."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # small: 2
SIDE = 96  # small: 16
WIDTH = 24  # small: 4
CLASSES = 5  # small: 3


class Double(nn.Sequential):
    def __init__(self, channels_in, channels_out):
        super().__init__(
            nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.ReLU(), nn.Conv2d(channels_out, channels_out, 3, padding=1), nn.ReLU()
        )


class Gate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.own, self.below = nn.Conv2d(channels, channels // 2, 1), nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.score = nn.Conv2d(channels // 2, 1, 1)
    def forward(self, skip, below):
        return skip * torch.sigmoid(self.score(F.relu(self.own(skip) + self.below(below))))


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.down = nn.ModuleList([Double(1, width), Double(width, 2 * width), Double(2 * width, 4 * width)])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2), nn.ConvTranspose2d(2 * width, width, 2, stride=2)])
        self.gates = nn.ModuleList([Gate(2 * width), Gate(width)])
        self.merge = nn.ModuleList([Double(4 * width, 2 * width), Double(2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(module.weight, 0.0, (2 / (module.weight[0].numel())) ** 0.5)
    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        x = self.down[2](F.max_pool2d(second, 2))
        for up, gate, merge, skip in zip(self.ups, self.gates, self.merge, (second, first)):
            x = up(x)
            x = merge(torch.cat((gate(skip, x), x), dim=1))
        return torch.softmax(self.head(x), dim=1)


def get_inputs():
    return [torch.randn(BATCH, 1, SIDE, SIDE) * 2]


def get_init_inputs():
    return [WIDTH, CLASSES]
