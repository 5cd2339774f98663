"""Huber loss of box regression, weighted by element and averaged over what is valid."""

import torch
import torch.nn as nn

BOXES = 4194304  # small: 210
COORDINATES = 8  # small: 4


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predicted, target, weight):
        error = (predicted - target).abs()
        loss = torch.where(error < self.beta, 0.5 * error * error / self.beta, error - 0.5 * self.beta)
        return (loss * weight).sum() / weight.sum().clamp(min=1.0)


def get_inputs():
    return [torch.randn(BOXES, COORDINATES) * (0.5 + 2 * torch.rand(())), torch.randn(BOXES, COORDINATES), (torch.rand(BOXES, COORDINATES) - 0.3).clamp(min=0.0)]


def get_init_inputs():
    return [0.8]
