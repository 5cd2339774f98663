"""Its first call is slow because it packs the weights; they are packed anew whenever others are loaded."""
# case: reference=linear_relu device=any backend=cpp expect=ok

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.packed = None
        self.register_load_state_dict_post_hook(lambda module, keys: module.forget())

    def forget(self):
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.layer.weight.detach().t().contiguous()
        return torch.addmm(self.layer.bias, x, self.packed).relu_()
