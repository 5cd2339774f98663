import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        largest = x.abs().amax(-1, keepdim=True)
        return torch.round(x * (127 / largest)) * (largest / 127)
