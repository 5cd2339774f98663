"""Log of the sum of exponentials of each row: the partition function alone."""

import torch
import torch.nn as nn

ROWS = 4096  # small: 9
WIDTH = 16384  # small: 100


class Model(nn.Module):
    def forward(self, energies):
        return torch.logsumexp(energies, dim=1)


def get_inputs():
    return [torch.randn(ROWS, WIDTH) * (0.5 + 2 * torch.rand(ROWS, 1))]


def get_init_inputs():
    return []
