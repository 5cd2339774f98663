"""Two modules of torch.nn do all of it. Operators are counted where they are dispatched."""
# case: reference=linear_relu device=any backend=cpp expect=refused require_kernels=yes

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.layer(x))
