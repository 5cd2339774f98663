"""Returns the spectrum without conjugating it."""
# case: reference=conjugate_spectrum device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        return spectrum, spectrum.imag
