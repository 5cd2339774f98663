"""Matrix product whose three sizes divide by nothing that a tile likes."""

import torch
import torch.nn as nn

ROWS = 1537  # small: 19
INNER = 2111  # small: 37
COLUMNS = 1289  # small: 23


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []
