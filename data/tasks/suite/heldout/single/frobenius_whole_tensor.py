"""Scale a whole batch of feature maps by one number, so that their mean square is one."""

import torch
import torch.nn as nn

BATCH = 28  # small: 2
CHANNELS = 72  # small: 3
SIDE = 104  # small: 8


class Model(nn.Module):
    def forward(self, x):
        return x * (x.numel() ** 0.5 / torch.linalg.vector_norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * (0.5 + 3 * torch.rand(()))]


def get_init_inputs():
    return []
