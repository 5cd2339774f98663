"""One linear layer."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn(512, 768)]


def get_init_inputs():
    return [768, 512]
