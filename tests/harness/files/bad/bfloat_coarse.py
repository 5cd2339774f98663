import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x.float(), -1)
        return (torch.round(y * 1024) / 1024).to(x.dtype)
