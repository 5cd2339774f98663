"""The end of a convolutional classifier in eval mode: convolution, batch norm, GELU, mean over the plane, linear."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32  # small: 2
CHANNELS = 96  # small: 4
WIDTH = 288  # small: 6
SIDE = 20  # small: 7
CLASSES = 365  # small: 9


class Model(nn.Module):
    def __init__(self, channels, width, classes):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.2, 0.8)
        self.head = nn.Linear(width, classes)
        self.eval()
    def forward(self, x):
        x = F.gelu(self.norm(self.conv(x)))
        return self.head(x.mean(dim=(2, 3)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) + torch.randn(BATCH, CHANNELS, 1, 1)]


def get_init_inputs():
    return [CHANNELS, WIDTH, CLASSES]
