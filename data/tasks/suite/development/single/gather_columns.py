"""For every row its own choice of columns, as candidates are taken out of a score table."""

import torch
import torch.nn as nn

ROWS = 8192  # small: 7
COLUMNS = 4096  # small: 50
KEPT = 2048  # small: 19


class Model(nn.Module):
    def forward(self, table, index):
        return torch.gather(table, 1, index)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randint(0, COLUMNS, (ROWS, KEPT))]


def get_init_inputs():
    return []
