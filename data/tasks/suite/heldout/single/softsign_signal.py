"""Softsign of a signal, written out: divide by one plus the magnitude."""

import torch
import torch.nn as nn

CHANNELS = 96  # small: 4
SAMPLES = 262200  # small: 70


class Model(nn.Module):
    def forward(self, x):
        return x / (1 + torch.abs(x))


def get_inputs():
    return [torch.randn(CHANNELS, SAMPLES) * 4]


def get_init_inputs():
    return []
