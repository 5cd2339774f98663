"""Channel bias and ReLU on feature maps: what is left when a convolution comes without either."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
CHANNELS = 128  # small: 6
SIDE = 112  # small: 9


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return torch.relu(x + self.bias)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
