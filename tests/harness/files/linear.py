import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.layer = nn.Linear(rows, columns)

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return [256, 32]
