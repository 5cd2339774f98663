import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return torch.round(x / scale - 0.001) * scale
