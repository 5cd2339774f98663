"""Three elementwise steps on a thousand numbers: a call takes microseconds, and so does telling that it is over."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
