"""Half-precision product with a short inner dimension: the output is by far the largest of the three."""

import torch
import torch.nn as nn

ROWS = 8200  # small: 21
INNER = 56  # small: 6
COLUMNS = 6152  # small: 18


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(ROWS, INNER, dtype=torch.float16), torch.randn(INNER, COLUMNS, dtype=torch.float16)]


def get_init_inputs():
    return []
