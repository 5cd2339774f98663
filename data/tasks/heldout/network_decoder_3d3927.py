"""Decoder: conv transpose2d, cat, batch norm, selu."""

import torch
from torch import nn

BATCH = 4  # small: 2
CHANNELS = 24  # small: 24
SIZE = 33  # small: 12
CHANNELS_OUT = 48  # small: 16


class Model(nn.Module):
    def __init__(self, channels, channels_out):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels_out, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(2 * channels_out)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.activation = nn.SELU()
        self.eval()

    def forward(self, features, skip):
        residual = torch.cat((self.up(features), skip), 1)
        update = self.activation(self.norm(residual))
        return update


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE), torch.randn(BATCH, CHANNELS_OUT, 2 * SIZE - 1, 2 * SIZE - 1) * (0.5 + torch.rand(BATCH, CHANNELS_OUT, 2 * SIZE - 1, 1))]


def get_init_inputs():
    return [CHANNELS, CHANNELS_OUT]
