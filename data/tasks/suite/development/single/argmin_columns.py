"""For every column the row with the smallest cost."""

import torch
import torch.nn as nn

ROWS = 4096  # small: 27
COLUMNS = 12288  # small: 35


class Model(nn.Module):
    def forward(self, cost):
        return torch.argmin(cost, dim=0)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
