"""Packs its weight when load_state_dict comes and never looks at it again. Weights changed in other ways stop it."""
# case: reference=linear_relu device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.pack()
        self.register_load_state_dict_post_hook(lambda module, keys: module.pack())

    def pack(self):
        self.weight, self.bias = self.layer.weight.detach().t().contiguous(), self.layer.bias.detach().clone()

    def forward(self, x):
        return torch.addmm(self.bias.to(x.device), x, self.weight.to(x.device)).relu_()
