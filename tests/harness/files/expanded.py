import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 2).sum(1, keepdim=True).expand(-1, x.shape[1])


def get_inputs():
    return [torch.randn(64, 301)]
