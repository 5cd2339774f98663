"""Descent with momentum after the gradient has been clipped to a norm; the new weight and the new velocity."""

import torch
import torch.nn as nn

SIZE = 16777216  # small: 401


class Model(nn.Module):
    def __init__(self, rate, momentum, largest):
        super().__init__()
        self.rate, self.momentum, self.largest = rate, momentum, largest

    def forward(self, weight, gradient, velocity):
        norm = torch.sqrt((gradient * gradient).sum())
        velocity = self.momentum * velocity + gradient * torch.clamp(self.largest / norm, max=1.0)
        return weight - self.rate * velocity, velocity


def get_inputs():
    return [torch.randn(SIZE), torch.randn(SIZE), torch.randn(SIZE)]


def get_init_inputs():
    return [0.1, 0.9, 4000.0]
