"""Running sum of every row that leaves out the element itself: offsets from lengths."""

import torch
import torch.nn as nn

ROWS = 3000  # small: 5
COLUMNS = 7000  # small: 37


class Model(nn.Module):
    def forward(self, x):
        start = torch.zeros_like(x[:, :1])
        return torch.cumsum(torch.cat((start, x[:, :-1]), dim=1), dim=1)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
