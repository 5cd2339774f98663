"""Pre-norm of a shifted-window block: layer norm over channels, a cyclic shift, windows cut out."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
SIDE = 112  # small: 8
CHANNELS = 128  # small: 12
WINDOW = 7  # small: 4


class Model(nn.Module):
    def __init__(self, channels, window):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)
        self.window = window

    def forward(self, x):
        batch, rows, columns, channels = x.shape
        w = self.window
        x = torch.roll(self.norm(x), (-(w // 2), -(w // 2)), (1, 2))
        x = x.view(batch, rows // w, w, columns // w, w, channels).transpose(2, 3)
        return x.reshape(-1, w * w, channels)


def get_inputs():
    return [torch.randn(BATCH, SIDE, SIDE, CHANNELS)]


def get_init_inputs():
    return [CHANNELS, WINDOW]
