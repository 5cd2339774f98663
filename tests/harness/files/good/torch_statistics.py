import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        n = self.norm
        variance, mean = torch.var_mean(x, 0, correction=0)
        with torch.no_grad():
            n.running_mean.mul_(0.9).add_(mean, alpha=0.1)
            n.running_var.mul_(0.9).add_(variance * (len(x) / max(len(x) - 1, 1)), alpha=0.1)
            n.num_batches_tracked += 1
        return (x - mean) * (variance + n.eps).rsqrt() * n.weight + n.bias
