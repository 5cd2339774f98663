"""Returns conjugated and negated values, where the reference sets bits."""
# case: reference=conjugate_spectrum device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        spectrum = torch.fft.rfft(x).conj_physical()
        return spectrum, spectrum.imag.contiguous()
