"""ConvNeXt-like branch in channels-first layout: norm over the channels, GELU, layer scale, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16  # small: 2
CHANNELS = 192  # small: 12
SIDE = 56  # small: 7


class Model(nn.Module):
    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(channels, 1, 1).uniform_(0.5, 1.5))
        self.bias = nn.Parameter(torch.randn(channels, 1, 1) * 0.2)
        self.layer_scale = nn.Parameter(torch.empty(channels, 1, 1).uniform_(0.1, 0.6))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        spread = centred.pow(2).mean(dim=1, keepdim=True)
        normed = centred / torch.sqrt(spread + self.eps) * self.gain + self.bias
        return x + self.layer_scale * F.gelu(normed)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
