"""Divergence of a diagonal Gaussian from the standard one, summed over the latent channels of every pixel."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
CHANNELS = 16  # small: 4
SIDE = 192  # small: 9


class Model(nn.Module):
    def forward(self, moments):
        mean, log_variance = moments.chunk(2, dim=1)
        log_variance = torch.clamp(log_variance, -30.0, 20.0)
        return 0.5 * torch.sum(mean.pow(2) + log_variance.exp() - 1.0 - log_variance, dim=1)


def get_inputs():
    return [torch.randn(BATCH, 2 * CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
