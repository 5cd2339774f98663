"""Average pooling with tall windows, padding that does not count, and a last window that sticks out."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
CHANNELS = 40  # small: 3
HEIGHT = 205  # small: 30
WIDTH = 188  # small: 17


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d((9, 4), stride=(4, 3), padding=(4, 1), ceil_mode=True, count_include_pad=False)
    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
