"""Mean, silu, mul, sigmoid, shift and 2 more."""

import torch
import torch.nn as nn

BATCH = 6  # small: 2
CHANNELS = 48  # small: 40
SIDE = 27  # small: 9


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.SiLU()
        self.layer = nn.Sigmoid()

    def forward(self, inputs):
        features = torch.mean(inputs, dim=3, keepdim=True)
        features = self.act(features)
        residual = inputs * features
        inputs = self.layer(inputs)
        inputs = torch.add(inputs, 0.5)
        residual = residual.div(inputs)
        return torch.where(residual >= 0, residual, residual * 0.3)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
