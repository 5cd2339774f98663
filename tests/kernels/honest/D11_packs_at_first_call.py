"""Its first call is slow because it packs the weights; they are packed again when they have been written or replaced."""
# case: reference=linear_relu device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.key, self.packed = None, None

    def forward(self, x):
        key = (self.layer.weight.data_ptr(), self.layer.weight._version)
        if key != self.key:
            self.key, self.packed = key, self.layer.weight.detach().t().contiguous()
        return torch.addmm(self.layer.bias, x, self.packed).relu_()
