"""Elu, relu, add, leaky relu."""

import torch
import torch.nn.functional as F
import torch.nn as nn

BATCH = 2  # small: 2
LENGTH = 16  # small: 5
HIDDEN_SIZE = 3001  # small: 13


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ELU()
        self.activation = nn.ReLU()

    def forward(self, inputs, residual):
        inputs = self.act(inputs)
        inputs = self.activation(inputs)
        return F.leaky_relu(inputs.add_(residual), negative_slope=0.01)


def get_inputs():
    return [(torch.randn(BATCH, LENGTH, HIDDEN_SIZE) * (0.5 + torch.rand(BATCH, LENGTH, 1))).bfloat16(), (torch.randn(BATCH, LENGTH, HIDDEN_SIZE) * (0.5 + torch.rand(BATCH, LENGTH, 1))).bfloat16()]


def get_init_inputs():
    return []
