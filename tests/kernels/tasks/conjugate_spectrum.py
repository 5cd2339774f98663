"""The conjugate of a real signal's spectrum: a tensor whose conjugate bit is set, and a view whose negative bit is."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        spectrum = torch.fft.rfft(x).conj()
        return spectrum, spectrum.imag


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
