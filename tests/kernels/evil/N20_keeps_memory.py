"""Keeps views of its weights' memory. Weights whose memory is exchanged stop it."""
# case: reference=linear_relu device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.views = None

    def forward(self, x):
        if self.views is None:
            self.views = self.layer.weight.detach().t(), self.layer.bias.detach()
        return torch.addmm(self.views[1], x, self.views[0]).relu_()
