"""Four gated dilated convolution layers with residual and skip paths: a head on the summed skips, and the state for the next stack."""

import torch
import torch.nn as nn

BATCH = 4  # small: 2
CHANNELS = 64  # small: 4
SKIPS = 128  # small: 6
TIME = 4096  # small: 40
LAYERS = 4  # small: 3


class Layer(nn.Module):
    def __init__(self, channels, skips, dilation):
        super().__init__()
        self.dilation = dilation
        self.filter = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.gate = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.residual = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, skips, 1)

    def forward(self, x):
        past = nn.functional.pad(x, (self.dilation, 0))
        y = torch.tanh(self.filter(past)) * torch.sigmoid(self.gate(past))
        return x + self.residual(y), self.skip(y)


class Model(nn.Module):
    def __init__(self, channels, skips, layers):
        super().__init__()
        self.layers = nn.ModuleList([Layer(channels, skips, 2**i) for i in range(layers)])
        self.head = nn.Conv1d(skips, skips, 1)

    def forward(self, x):
        total = 0.0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.head(torch.relu(total)), x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, TIME)]


def get_init_inputs():
    return [CHANNELS, SKIPS, LAYERS]
