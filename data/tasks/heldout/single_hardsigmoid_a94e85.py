"""Hardsigmoid."""

import torch
import torch.nn as nn

BATCH = 32  # small: 2
HEADS = 16  # small: 3
TOKENS = 50  # small: 6
DEPTH = 16  # small: 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Hardsigmoid()

    def forward(self, inputs):
        return self.layer(inputs)


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, DEPTH)]


def get_init_inputs():
    return []
