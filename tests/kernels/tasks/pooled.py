"""Max pooling."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 2)


def get_inputs():
    return [torch.randn(8, 16, 64, 64)]


def get_init_inputs():
    return []
