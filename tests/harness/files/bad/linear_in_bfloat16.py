import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.layer = nn.Linear(rows, columns)

    def forward(self, x):
        return (x.bfloat16().float() @ self.layer.weight.bfloat16().float().t()) + self.layer.bias
