"""Two mixer layers: an MLP over the patches, transposed, then one over the channels, each behind a norm with a residual."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
PATCHES = 196  # small: 9
WIDTH = 512  # small: 12
HIDDEN_PATCHES = 256  # small: 7
HIDDEN_WIDTH = 1024  # small: 16


class Layer(nn.Module):
    def __init__(self, patches, width, hidden_patches, hidden_width):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        for norm in self.norms:
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
        self.tokens = nn.Sequential(nn.Linear(patches, hidden_patches), nn.GELU(), nn.Linear(hidden_patches, patches))
        self.channels = nn.Sequential(nn.Linear(width, hidden_width), nn.GELU(), nn.Linear(hidden_width, width))

    def forward(self, x):
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.layers = nn.Sequential(Layer(*sizes), Layer(*sizes))

    def forward(self, x):
        return self.layers(x).mean(dim=1)


def get_inputs():
    return [torch.randn(BATCH, PATCHES, WIDTH) + torch.randn(BATCH, 1, WIDTH)]


def get_init_inputs():
    return [PATCHES, WIDTH, HIDDEN_PATCHES, HIDDEN_WIDTH]
