import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (torch.relu(x) * 2 + 1)[:1]
