"""Row means, written out once for every column."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True).repeat(1, x.shape[1])


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
