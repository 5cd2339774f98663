import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.relu_().mul_(2).add_(1)
