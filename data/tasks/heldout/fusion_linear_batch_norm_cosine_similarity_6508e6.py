"""Linear, batch norm, cosine similarity."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 3072  # small: 6
WIDTH = 577  # small: 5
FEATURES = 48  # small: 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, FEATURES, bias=False)
        self.norm = nn.BatchNorm1d(FEATURES)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.eval()

    def forward(self, x, other):
        h = F.cosine_similarity(self.norm(self.linear(x)), other, dim=1)
        return h


def get_inputs():
    return [torch.randn(BATCH, WIDTH) * 1.5, torch.randn(BATCH, FEATURES) * (0.5 + torch.rand(BATCH, 1))]


def get_init_inputs():
    return []
