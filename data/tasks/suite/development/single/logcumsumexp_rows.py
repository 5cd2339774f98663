"""Running log-sum-exp of log-weights along a sequence."""

import torch
import torch.nn as nn

ROWS = 8192  # small: 7
LENGTH = 2048  # small: 39


class Model(nn.Module):
    def forward(self, log_weights):
        return torch.logcumsumexp(log_weights, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, LENGTH) * 2]


def get_init_inputs():
    return []
