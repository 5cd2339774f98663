"""Three elementwise steps that one pass over memory can do."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
