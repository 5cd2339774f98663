"""Row means as a view that repeats them along each row without writing them out."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.exp().mean(1, keepdim=True).expand(-1, x.shape[1])


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
