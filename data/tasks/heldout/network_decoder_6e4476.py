"""Decoder: conv transpose2d, add, batch norm, relu."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 1  # small: 1
CHANNELS = 384  # small: 16
SIZE = 28  # small: 12
CHANNELS_OUT = 128  # small: 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(CHANNELS, CHANNELS_OUT, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(CHANNELS_OUT)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.eval()

    def forward(self, images, skip):
        t = self.up(images)
        tmp = self.norm(skip + t)
        return F.relu(tmp, inplace=True)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE), torch.randn(BATCH, CHANNELS_OUT, 2 * SIZE - 1, 2 * SIZE - 1) * (0.5 + torch.rand(BATCH, CHANNELS_OUT, 2 * SIZE - 1, 1))]


def get_init_inputs():
    return []
