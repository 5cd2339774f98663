"""Returns lazy views with the conjugate and the negative bit set, as the reference does."""
# case: reference=conjugate_spectrum device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        spectrum = torch.fft.rfft(x).conj()
        return spectrum, spectrum.imag
