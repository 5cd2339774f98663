"""Differentiable histogram: every pixel falls into bins softly, by a Gaussian around each centre."""

import torch
import torch.nn as nn

BATCH = 32  # small: 3
PIXELS = 16384  # small: 40
BINS = 32  # small: 6


class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, 1, bins))
        self.sharpness = 0.5 * bins**2

    def forward(self, pixels):
        apart = pixels.unsqueeze(-1) - self.centres
        return torch.exp(-self.sharpness * apart * apart).mean(dim=1)


def get_inputs():
    return [torch.rand(BATCH, PIXELS) ** (0.3 + 3 * torch.rand(BATCH, 1))]


def get_init_inputs():
    return [BINS]
