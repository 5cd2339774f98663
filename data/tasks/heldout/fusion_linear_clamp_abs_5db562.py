"""Linear, clamp, abs, mul, batch norm and 6 more."""

import torch
import torch.nn as nn

BATCH = 4096  # small: 7
DIM = 26  # small: 6
OUT_FEATURES = 64  # small: 16


class Model(nn.Module):
    def __init__(self, dim, out_features):
        super().__init__()
        self.linear = nn.Linear(dim, out_features, bias=False)
        self.weight = nn.Parameter(torch.rand(out_features) * 1.0 + 0.5)
        self.norm = nn.BatchNorm1d(out_features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.norm.running_mean.normal_(0.0, 0.2)
        self.norm.running_var.uniform_(0.4, 1.2)
        self.gamma = nn.Parameter(torch.rand(out_features) * 1.0 + 0.5)
        self.beta = nn.Parameter(torch.empty(out_features).uniform_(-0.5, 0.5))
        self.eval()

    def forward(self, x):
        t = self.linear(x)
        tmp = t.clip(-0.89, 0.85)
        mid = abs(tmp)
        part = mid * self.weight
        t2 = self.norm(part)
        t3 = t2 * mid
        t4 = torch.mul(t3, self.gamma)
        t5 = self.beta + t4
        t6 = abs(t5)
        t7 = t6.add(0.5)
        return t7.pow(2.5)


def get_inputs():
    return [torch.randn(BATCH, DIM) - 0.5]


def get_init_inputs():
    return [DIM, OUT_FEATURES]
