"""Survival curves: running product of what is left after each interval."""

import torch
import torch.nn as nn

PATIENTS = 32768  # small: 9
INTERVALS = 1024  # small: 25


class Model(nn.Module):
    def forward(self, survived):
        return survived.cumprod(dim=1)


def get_inputs():
    return [1 - 0.004 * torch.rand(PATIENTS, INTERVALS)]


def get_init_inputs():
    return []
