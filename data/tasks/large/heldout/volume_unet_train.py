"""A U-Net of volumes in training mode: 3-D convolutions, batch norm, ReLU, transposed convolutions, joined skips."""

import torch
import torch.nn as nn

BATCH = 2  # small: 2
SIZE = 96  # small: 8
WIDTH = 24  # small: 3
CLASSES = 4  # small: 3


class Double(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv3d(inputs, outputs, 3, padding=1, bias=False), nn.Conv3d(outputs, outputs, 3, padding=1, bias=False)])
        self.norms = nn.ModuleList([nn.BatchNorm3d(outputs), nn.BatchNorm3d(outputs)])
        for norm in self.norms:
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = torch.relu(norm(conv(x)))
        return x


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.down = nn.ModuleList([Double(1, width), Double(width, 2 * width), Double(2 * width, 4 * width)])
        self.ups = nn.ModuleList([nn.ConvTranspose3d(4 * width, 2 * width, 2, 2), nn.ConvTranspose3d(2 * width, width, 2, 2)])
        self.up = nn.ModuleList([Double(4 * width, 2 * width), Double(2 * width, width)])
        self.head = nn.Conv3d(width, classes, 1)
    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](nn.functional.max_pool3d(first, 2))
        x = self.down[2](nn.functional.max_pool3d(second, 2))
        x = self.up[0](torch.cat([second, self.ups[0](x)], dim=1))
        x = self.up[1](torch.cat([first, self.ups[1](x)], dim=1))
        return self.head(x)


def get_inputs():
    return [torch.randn(BATCH, 1, SIZE, SIZE, SIZE)]


def get_init_inputs():
    return [WIDTH, CLASSES]
