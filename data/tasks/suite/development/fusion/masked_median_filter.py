"""Robust smoothing: a median of three neighbours in time, blended with the signal where a mask says so."""

import torch
import torch.nn as nn

SIGNALS = 8192  # small: 7
TIME = 1024  # small: 27


class Model(nn.Module):
    def forward(self, signal, trusted):
        windows = signal.unfold(1, 3, 1)
        middle = windows.median(dim=-1).values
        smooth = torch.cat((signal[:, :1], middle, signal[:, -1:]), dim=1)
        return torch.where(trusted, signal, 0.25 * signal + 0.75 * smooth)


def get_inputs():
    return [torch.randn(SIGNALS, TIME), torch.rand(SIGNALS, TIME) < 0.5]


def get_init_inputs():
    return []
