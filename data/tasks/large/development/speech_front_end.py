"""The strided front end of a speech encoder: convolutions over time, layer norm over channels, GELU."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
WIDTH = 256  # small: 8
SAMPLES = 160000  # small: 400


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv1d(1, width, 10, stride=5, bias=False), nn.Conv1d(width, width, 3, stride=2, bias=False),
             nn.Conv1d(width, width, 3, stride=2, bias=False)])
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        for norm in self.norms:
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)

    def forward(self, x):
        x = x[:, None]
        for conv, norm in zip(self.convs, self.norms):
            x = nn.functional.gelu(norm(conv(x).transpose(1, 2)).transpose(1, 2))
        return x


def get_inputs():
    return [torch.randn(BATCH, SAMPLES)]


def get_init_inputs():
    return [WIDTH]
