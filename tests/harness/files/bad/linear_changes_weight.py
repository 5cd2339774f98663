import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.layer = nn.Linear(rows, columns)

    def forward(self, x):
        y = self.layer(x)
        self.layer.weight.data.mul_(1.0000001)
        return y
