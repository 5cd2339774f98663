import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        variance, mean = torch.var_mean(x, 0, correction=0)
        return (x - mean) * (variance + self.norm.eps).rsqrt() * self.norm.weight + self.norm.bias
