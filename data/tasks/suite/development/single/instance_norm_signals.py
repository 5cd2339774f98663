"""Every channel of every signal brought to zero mean and unit variance, with gain and bias."""

import torch
import torch.nn as nn

SIGNALS = 96  # small: 3
CHANNELS = 80  # small: 4
SAMPLES = 4000  # small: 33


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm1d(channels, affine=True)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(SIGNALS, CHANNELS, SAMPLES) * 3 + 1]


def get_init_inputs():
    return [CHANNELS]
