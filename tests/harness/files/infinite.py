import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.where(x > 1, torch.inf, x * 3)


def get_inputs():
    return [torch.randn(32, 64)]
