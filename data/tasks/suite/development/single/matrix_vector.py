"""One matrix times one vector: a step of a power iteration."""

import torch
import torch.nn as nn

ROWS = 12000  # small: 41
COLUMNS = 10000  # small: 53


class Model(nn.Module):
    def forward(self, matrix, vector):
        return torch.mv(matrix, vector)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs():
    return []
