"""The k-th smallest value of every row and where it is: a percentile of measured latencies."""

import torch
import torch.nn as nn

ROWS = 8000  # small: 7
SAMPLES = 1100  # small: 40
RANK = 1045  # small: 38


class Model(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank
    def forward(self, x):
        return torch.kthvalue(x, self.rank, dim=1).values


def get_inputs():
    return [torch.rand(ROWS, SAMPLES).exp()]


def get_init_inputs():
    return [RANK]
