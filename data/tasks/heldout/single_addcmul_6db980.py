"""Addcmul."""

import torch
import torch.nn as nn

BATCH = 16  # small: 6
WIDTH = 40435  # small: 13


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(WIDTH).uniform_(-0.5, 0.5))
        self.register_buffer("gamma", torch.empty(WIDTH).uniform_(0.5, 1.5))

    def forward(self, inputs):
        inputs = self.bias.addcmul(inputs, self.gamma)
        return inputs


def get_inputs():
    return [torch.randn(BATCH, WIDTH) + 1.0]


def get_init_inputs():
    return []
