"""Centres a batch and keeps a running covariance of it in a buffer, which is most of the work."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("covariance", torch.eye(width))

    def forward(self, x):
        centred = x - x.mean(0)
        with torch.no_grad():
            self.covariance.mul_(0.9).add_(centred.t() @ centred, alpha=0.1 / x.shape[0])
        return centred * 2


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return [512]
