"""Instance norm."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 24  # small: 2
CHANNELS = 160  # small: 16
LENGTH = 300  # small: 16


class Model(nn.Module):
    def forward(self, inputs):
        inputs = F.instance_norm(inputs)
        return inputs


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH) * (0.5 + torch.rand(BATCH, CHANNELS, 1))]


def get_init_inputs():
    return []
