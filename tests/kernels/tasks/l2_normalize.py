"""Rows divided by their length, zero rows kept."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=1)


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
