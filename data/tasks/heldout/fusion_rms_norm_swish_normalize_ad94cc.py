"""Rms norm, swish, normalize, layer norm, rsub and 3 more."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 4  # small: 4
DIM = 32003  # small: 17


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        self.ln = nn.LayerNorm(dim)
        nn.init.uniform_(self.ln.weight, 0.5, 1.5)
        nn.init.uniform_(self.ln.bias, -0.5, 0.5)
        self.weight = nn.Parameter(torch.empty(dim).uniform_(0.5, 1.5))
        self.beta = nn.Parameter(torch.empty(dim).uniform_(-0.5, 0.5))
        self.half()

    def forward(self, features):
        features = self.norm(features)
        features = features * torch.sigmoid(features)
        features = F.normalize(features, p=2.0, dim=1)
        features = self.ln(features)
        features = 2.0 - features
        features = F.softshrink(features, 0.2)
        features = torch.mul(features, self.weight)
        return features + self.beta


def get_inputs():
    return [(torch.randn(BATCH, DIM)).half()]


def get_init_inputs():
    return [DIM]
